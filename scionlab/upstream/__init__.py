"""The network as upstream SCIONLab's coordination service has it, read from a dump of its database (`dumpdata`, JSON).

dump     bytes -> entries, whose fields are read one by one and strictly
rows     what an entry says, as plain values; a host or a Link by its primary key there
network  entries -> one `Network`: references followed, repeated ISDs merged, addresses worked out
report   what an import made, changed and left out, and the text that says it

These are pure: no Django, no database, and none of our rules. The importer has them:

importer      the whole import in one transaction; import_state: what it knows while its steps run
import_rules  our rules on what a dump holds, before anything is written
import_ases, import_attachment_points, import_links    its steps
"""

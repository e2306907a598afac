"""Import of the network of SCIONLab's own coordination service from a dump of its database (`dumpdata`, JSON).

dump     bytes -> entries, whose fields are read strictly
rows     content of an entry as plain values; references are primary keys of the dump
network  entries -> one `Network`: references followed, repeated ISDs merged, addresses resolved
report   what an import created, changed and skipped, as text

These are pure: no Django, no database, and no rules. The importer has them:

importer      the whole import in one transaction; import_state: shared state of its steps
import_rules  our rules on the dump, before anything is written
import_ases, import_attachment_points, import_links, import_trust    its steps

An extension: offers the command `import_scionlab`; needs the core, and scion_config for the keys of the dump.
"""

"""The network as upstream SCIONLab's coordination service has it, read from a dump of its database (`dumpdata`, JSON).

dump     bytes -> entries, whose fields are read one by one and strictly
rows     what an entry says, as plain values; a host or a Link by its primary key there
network  entries -> one `Network`: references followed, repeated ISDs merged, addresses worked out
report   what an import made, changed and left out, and the text that says it

Pure: no Django, no database, and none of our rules (`scionlab.services.import_rules`).
"""

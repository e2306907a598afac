"""Bases of Django admin's pages. States, problems, changes of defaults and the history are in the cockpit.

Every change goes through a service, as on the users' pages; see `base.ServiceAdmin`. An administrator is an account
with `is_staff`: Django's permissions are not used. Its groups select people to whom exceptions
and policies apply.
"""

from django.contrib import admin

admin.site.site_header = "SCIONLab Bandwidth Service"
admin.site.site_title = "SCIONLab Bandwidth Service"
admin.site.index_title = "Administration of the testbed"
admin.site.disable_action("delete_selected")  # calls no service

"""Django admin: the tables of the service. States, problems, changes of defaults and the history are in the cockpit.

One module per group of pages. Every change goes through a service, as on the users' pages; see `base.ServiceAdmin`. An
administrator is an account with `is_staff`: Django's permissions are not used. Its groups select the people to whom a
policy of tests applies.
"""

from django.contrib import admin

from scionlab.admin import host, link, network, policy, records, signing, test_policy, user, user_as

__all__ = ["host", "link", "network", "policy", "records", "signing", "test_policy", "user", "user_as"]

admin.site.site_header = "SCIONLab Bandwidth Service"
admin.site.site_title = "SCIONLab Bandwidth Service"
admin.site.index_title = "Administration of the testbed"
admin.site.disable_action("delete_selected")  # calls no service

"""What the lab's service knows: an attachment point and a user AS, made by the services that its pages call.

`manage.py shell` reads this inside the web container; it prints one line of JSON.
"""

import json
import sys

from scionlab.accounts.api_token import api_token_create
from scionlab.accounts.models import User
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.testbed.models import Link, UserAS
from scionlab.user_ases.attachments import AttachmentSpec
from scionlab.user_ases.user_as import user_as_create

as_ = infrastructure_as_create(isd=17, as_text="ffaa:0:1107", label="AP", is_core=False, public_ipv4="10.80.0.2")
ap = attachment_point_create(as_=as_, default_bandwidth_kbit=2000)
user = User.objects.create_user("user@example.org", "a long enough phrase")
spec = AttachmentSpec(attachment_point_id=ap.pk, public_ip="10.80.0.3", public_port=50_000, bandwidth_kbit=1000)
made = user_as_create(
    owner=user, actor=user, label="Lab", installation_type=UserAS.Installation.DEDICATED, attachments=[spec]
)
link = Link.objects.get(interface_b__AS=made)
token = api_token_create(user_id=user.pk, name="lab", replaces=True).text
hosts = [[host.uid, host.secret] for host in (ap.host, made.hosts.get())]
sys.stdout.write(
    json.dumps(
        {"link": link.pk, "port": link.interface_a.public_port, "token": token, "as": made.isd_as, "hosts": hosts}
    )
    + "\n"
)

"""Receipts in the life of hosts."""

from scionlab.enforcement.models import HostReceipt
from scionlab.enforcement.receipt_mails import deployment_note
from scionlab.testbed.life import Life


class ReceiptsLife(Life):
    def secret_rotated(self, host_id: int) -> None:
        HostReceipt.objects.filter(host=host_id).update(former_runs=[], rival_address=None, rival_at=None)

    def deployed(self, host_id: int) -> None:
        deployment_note(host_id=host_id)

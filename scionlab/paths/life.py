"""Path metadata ends with its attachment point."""

from scionlab.paths.path_metadata import metadata_changed
from scionlab.testbed.life import Life
from scionlab.testbed.models import AttachmentPoint


class MetadataLife(Life):
    def attachment_point_ends(self, ap: AttachmentPoint) -> None:
        if ap.has_path_metadata:
            metadata_changed(ap)

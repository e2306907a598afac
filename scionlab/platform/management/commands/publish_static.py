"""`manage.py publish_static FOLDER`: adds this version's static files to those of earlier versions, for nginx."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    help = "Copies the content-hashed static files into a folder, atomically; removes none."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        collected, folder = Path(settings.STATIC_ROOT), options["folder"]
        hashed = json.loads((collected / "staticfiles.json").read_text(encoding="utf-8"))["paths"].values()
        names = [name for path in hashed for name in (path, f"{path}.gz") if (collected / name).exists()]
        for name in names:
            if not (folder / name).exists():
                _copy_whole(collected / name, folder / name)
        self.stdout.write(f"{len(names)} files of this version are in {folder}.")


def _copy_whole(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    shutil.copyfile(source, part)
    part.replace(target)

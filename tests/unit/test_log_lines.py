"""Nobody writes lines of their own into the service's log."""

from __future__ import annotations

import copy
import io
import json
import logging
import logging.config
from collections.abc import Iterator

import pytest
from django.conf import settings

from scionlab.api.receipt_format import ReceiptError, parse_receipt


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the settings' own handler writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    as_set = copy.deepcopy(settings.LOGGING)
    handler.setFormatter(logging.config.DictConfigurator(as_set).configure_formatter(as_set["formatters"]["line"]))
    logger = logging.getLogger("scionlab.tried")
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def test_a_receipt_cannot_write_a_line_of_its_own(written: io.StringIO) -> None:
    forged = {"schema": 1, "writes": 0, "links": {"\nERROR root forged": {}}}
    with pytest.raises(ReceiptError) as caught:
        parse_receipt(json.dumps(forged).encode())
    logging.getLogger("scionlab.tried").warning("receipt.refused host=%s %s", 7, caught.value.message)
    assert "ERROR root forged" in written.getvalue()
    assert written.getvalue().count("\n") == 1
    assert written.getvalue().startswith(
        r"WARNING scionlab.tried receipt.refused host=7 links.\nERROR root forged: Send"
    )


def test_of_a_traceback_no_line_looks_like_an_event(written: io.StringIO) -> None:
    try:
        raise ValueError("bad\nERROR root forged")
    except ValueError:
        logging.getLogger("scionlab.tried").exception("it.failed")
    first, *others = written.getvalue().splitlines()
    assert first == "ERROR scionlab.tried it.failed"
    assert others[-1] == "    ERROR root forged"
    assert all(line.startswith("    ") for line in others)

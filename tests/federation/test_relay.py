"""What the analyzer passes on of a node's reply: what may be a report, nothing that would cost others theirs."""

import time

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, MessageType, Metadata, RecordDict

from apes.federation.relay import Relay
from apes.wire.frames import framed

SIZE = 225


def reply(data):
    """A node's answer with these bytes in the place of its reports."""
    sealed = Array("uint8", (len(data),), "raw", data)
    metadata = Metadata(1, "", 2, 1, "asked", "1", time.time(), 60.0, MessageType.TRAIN)
    return Message(metadata=metadata, content=RecordDict({"reports": ArrayRecord({"sealed": sealed})}))


def passed_on(data, most=3):
    return b"".join(Relay(None, None)._sealed(reply(data), SIZE, most))


def test_frames_that_are_no_report_are_dropped():
    """The shuffler takes 20,000 frames of rubbish in a batch: one node must not be able to fill them for everybody."""
    reports = [np.random.default_rng(seed).bytes(SIZE) for seed in range(3)]
    rubbish = [b""] * 30_000 + [bytes(SIZE - 1), bytes(SIZE + 1)]
    mixed = b"".join(framed([reports[0], *rubbish, *reports[1:]]))
    assert passed_on(mixed) == b"".join(framed(reports))


@pytest.mark.parametrize("cut", [1, SIZE, SIZE + 3])
def test_a_last_frame_cut_short_is_dropped(cut):
    reports = [bytes([seed]) * SIZE for seed in range(3)]
    assert passed_on(b"".join(framed(reports))[:-cut]) == b"".join(framed(reports[:2]))


def test_a_node_fills_no_more_places_than_a_card_has():
    """The batch is bounded: one node that repeats itself must not be able to fill it for everybody."""
    reports = [bytes([seed]) * SIZE for seed in range(200)]
    assert passed_on(b"".join(framed(reports)), most=7) == b"".join(framed(reports[:7]))

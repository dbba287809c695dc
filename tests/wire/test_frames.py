import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apes.errors import ParameterError, ProtocolError
from apes.wire.frames import FrameReader, first_frame, framed

# A machine that is busy with other tests is no fault of the strategies.
patient = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@patient
@given(st.lists(st.binary(max_size=20)), st.integers(1, 30))
def test_frames_come_back_however_the_stream_is_cut(items, step):
    stream = b"".join(framed(items))
    reader = FrameReader(20)
    got = [frame for i in range(0, len(stream), step) for frame in reader.feed(stream[i : i + step])]
    assert got == items
    assert reader.is_complete


@patient
@given(st.integers(21, 1000), st.integers(1, 30))
def test_a_frame_too_large_is_skipped_and_spoils_no_other(size, step):
    stream = b"".join(framed([b"before", bytes(size), b"after"]))
    reader = FrameReader(20)
    got = [frame for i in range(0, len(stream), step) for frame in reader.feed(stream[i : i + step])]
    assert got == [b"before", b"", b"after"]
    assert reader.is_complete


def test_a_frame_as_large_as_allowed_comes_back_and_a_larger_one_does_not():
    for size, expected in ((19, bytes(19)), (20, bytes(20)), (21, b"")):
        assert list(FrameReader(20).feed(b"".join(framed([bytes(size)])))) == [expected]


@pytest.mark.parametrize("cut", [1, 4, 5, 9])
def test_a_stream_cut_short_is_not_complete(cut):
    stream = b"".join(framed([b"before", b"after"]))
    reader = FrameReader(20)
    assert list(reader.feed(stream[:-cut])) == [b"before"]
    assert reader.is_complete == (cut == 9)


def test_a_stream_that_ends_within_a_frame_too_large_is_not_complete():
    reader = FrameReader(20)
    assert list(reader.feed(b"".join(framed([b"before", bytes(100)]))[:-1])) == [b"before", b""]
    assert not reader.is_complete
    assert list(reader.feed(b"\0")) == []
    assert reader.is_complete


def test_a_reader_holds_no_more_than_a_frame():
    reader = FrameReader(100)
    for _ in range(1000):
        assert list(reader.feed(b"\xff\xff\xff\x7f" if reader.is_complete else bytes(10_000))) in ([b""], [])
        assert len(reader._held) < 200


def test_largest_is_checked():
    with pytest.raises(ParameterError, match="largest"):
        FrameReader(0)


@patient
@given(st.binary(max_size=20), st.binary(max_size=20))
def test_the_first_frame_and_what_follows(item, rest):
    data = b"".join(framed([item])) + rest
    first, following = first_frame(data)
    assert (first, bytes(following)) == (item, rest)
    for end in range(4 + len(item)):
        with pytest.raises(ProtocolError, match=f"cut short.*got {end} bytes"):
            first_frame(data[:end])

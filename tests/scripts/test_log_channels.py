"""Every channel of INKLE_LOG is written to by something."""
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]


def test_every_channel_is_written_and_documented():
    header = (ROOT / "src" / "base" / "log.h").read_text()
    declared = re.search(r"enum class LogChannel \{(.*?)\};", header, re.DOTALL)[1]
    channels = re.findall(r"^\s*(\w+),", declared, re.MULTILINE)
    assert len(channels) > 5
    code = "".join(p.read_text() for p in (ROOT / "src").rglob("*.cpp"))
    page = (ROOT / "docs" / "base.md").read_text()
    for channel in channels:
        assert f"log(LogChannel::{channel}," in code, channel
        assert f"| `{channel}` |" in page, channel

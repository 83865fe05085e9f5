"""What the stand-in of the base image is made from: the host's own distribution, nobody else's packages."""

from __future__ import annotations

import pytest

from orchestrator.sandbox.base_image import debian_release, distribution_sources

DEBIAN_12_OS_RELEASE = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_CODENAME=bookworm\nID=debian\n'
UBUNTU_2404_OS_RELEASE = 'NAME="Ubuntu"\nVERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\n'

DEB822 = """\
Types: deb deb-src
# a snapshot
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Enabled: no
"""

NODE = "Types: deb\nURIs: https://node.example/node_20.x\nSuites: nodistro\nComponents: main\n"


@pytest.mark.parametrize(
    ("text", "release"),
    [
        (DEBIAN_12_OS_RELEASE, ("debian", "bookworm")),
        (UBUNTU_2404_OS_RELEASE, ("ubuntu", "noble")),
        ("ID=fedora\nVERSION_CODENAME=\n", None),
        ("ID=debian\n", None),
    ],
)
def test_the_release_of_the_host(tmp_path, text, release):
    (tmp_path / "os-release").write_text(text)
    assert debian_release(tmp_path / "os-release") == release


def test_a_host_without_os_release_is_no_debian(tmp_path):
    assert debian_release(tmp_path / "none") is None


def test_sources_of_the_distribution_are_kept_and_other_ones_are_not(tmp_path):
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (folder / "debian.sources").write_text(DEB822)
    (folder / "node.sources").write_text(NODE)
    (folder / "cloud.list").write_text("deb https://cloud.example/apt cloud-sdk-bookworm main\n")
    (folder / "engine.list").write_text("deb [arch=amd64] https://engine.example/linux/debian bookworm stable\n")
    assert distribution_sources("bookworm", tmp_path) == (
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n"
        "Components: main contrib\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )


def test_sources_in_the_old_form(tmp_path):
    (tmp_path / "sources.list").write_text(
        "# main\ndeb [signed-by=/k.gpg arch=amd64] http://mirror.example/ubuntu noble main universe\n"
        "deb-src http://mirror.example/ubuntu noble main\n"
    )
    assert distribution_sources("noble", tmp_path) == (
        "Types: deb\nURIs: http://mirror.example/ubuntu\nSuites: noble\nComponents: main universe\nSigned-By: /k.gpg\n"
    )


def test_without_sources_mmdebstrap_is_left_to_its_own(tmp_path):
    assert distribution_sources("bookworm", tmp_path) == ""

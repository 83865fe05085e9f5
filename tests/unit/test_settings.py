"""Where a setting comes from, and what is refused."""

from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.home import home_root
from orchestrator.settings import UNPREFIXED, Settings, decided_by, load_settings, size_bytes


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A home, and an environment that says nothing but where it is."""
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.delenv(f"SCHOOL_{name.upper()}", raising=False)
    folder = tmp_path / "home"
    (folder / "school").mkdir(parents=True)
    monkeypatch.setenv("SCHOOL_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def config(root: Path, text: str) -> None:
    (root / "school" / "config.toml").write_text(text, encoding="utf-8")


# -- sources -----------------------------------------------------------------------------------------------------------


def test_each_source_gives_way_to_the_stronger_one(root, monkeypatch):
    assert load_settings().student_timeout == 900
    config(root, "student_timeout = 1")
    assert load_settings().student_timeout == 1
    (root / ".env").write_text("SCHOOL_STUDENT_TIMEOUT=2\n")
    assert load_settings().student_timeout == 2
    monkeypatch.setenv("SCHOOL_STUDENT_TIMEOUT", "3")
    assert load_settings().student_timeout == 3
    assert load_settings(student_timeout=4).student_timeout == 4


def test_the_school_s_own_name_is_stronger_than_the_shared_one(root, monkeypatch):
    monkeypatch.setenv("HANDOFF_TIMEOUT", "1")
    assert load_settings().handoff_timeout == 1
    monkeypatch.setenv("SCHOOL_HANDOFF_TIMEOUT", "2")
    assert load_settings().handoff_timeout == 2


def test_a_dotenv_in_the_current_folder_is_never_read(root, tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("SCHOOL_STUDENT_TIMEOUT=7\nHANDOFF_TIMEOUT=7\nSCHOOL_HOME=/elsewhere\n")
    assert load_settings().student_timeout == 900
    assert load_settings().handoff_timeout == 120
    assert load_settings().home().root == root


def test_unknown_names_in_the_home_s_dotenv_are_ignored(root):
    """The file may be Hermes' own."""
    (root / ".env").write_text(
        "OPENROUTER_API_KEY=secret\nSCHOOL_NO_SUCH_THING=1\nLOG_LEVEL=TRACE\nSTUDENT_CPUS=many\n"
    )
    assert load_settings() == load_settings(student_timeout=900)
    assert "secret" not in repr(load_settings())


def test_an_unknown_name_in_config_toml_is_refused_and_named(root):
    config(root, "student_timeuot = 3")
    with pytest.raises(ConfigError, match="student_timeuot"):
        load_settings()


@pytest.mark.parametrize("name", sorted(set(Settings.model_fields) - UNPREFIXED))
def test_a_name_without_prefix_counts_only_where_it_is_listed(root, monkeypatch, name):
    before = getattr(load_settings(), name)
    monkeypatch.setenv(name.upper(), "12")
    (root / ".env").write_text(f"{name.upper()}=13\n")
    assert getattr(load_settings(), name) == before


@pytest.mark.parametrize("name", sorted(UNPREFIXED))
def test_a_listed_name_counts_without_prefix(root, monkeypatch, name):
    monkeypatch.setenv(name.upper(), "/17" if name.endswith(("_dir", "_home")) else "17")
    assert str(getattr(load_settings(), name)).strip("/").removesuffix(".0") == "17"


def test_an_empty_variable_counts_as_unset(root, monkeypatch):
    monkeypatch.setenv("SCHOOL_STUDENT_TIMEOUT", "")
    monkeypatch.setenv("BOOKBAG_DIR", "")
    assert load_settings().student_timeout == 900
    assert load_settings().home().bookbags == root / "bookbag"


def test_no_file_can_move_the_home(root, monkeypatch):
    (root / ".env").write_text("SCHOOL_HOME=/elsewhere\nSCHOOL_SCHOOL_HOME=/elsewhere\n")
    monkeypatch.setenv("SCHOOL_SCHOOL_HOME", "/elsewhere")
    assert load_settings().home().root == root == home_root()
    config(root, 'school_home = "/elsewhere"')
    with pytest.raises(ConfigError, match="school_home"):
        load_settings()


def test_the_home_s_three_folders_can_be_moved_one_by_one(root, monkeypatch):
    """R-8."""
    monkeypatch.setenv("SIGNAL_DIR", "~/flags")
    home = load_settings().home()
    assert home.signals == Path("~/flags").expanduser()
    assert (home.bookbags, home.locks) == (root / "bookbag", root / "locks")


def test_without_a_variable_the_home_is_the_user_s_hermes_folder(root, monkeypatch):
    monkeypatch.delenv("SCHOOL_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert home_root() == Path("/home/somebody/.hermes")


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("student_timeout", "soon"),
        ("student_timeout", "0"),
        ("student_cpus", "-1"),
        ("max_beads", "0"),
        ("omniroute_port", "70000"),
        ("default_agent", "claude"),
        ("default_agent", "loud"),
    ],
)
def test_a_bad_value_is_refused_with_the_setting_s_name_and_the_value(root, monkeypatch, name, value):
    monkeypatch.setenv(f"SCHOOL_{name.upper()}", value)
    with pytest.raises(ConfigError) as raised:
        load_settings()
    assert name in raised.value.message
    assert value in raised.value.message
    assert raised.value.next_step
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("file", "content"),
    [("school/config.toml", b"student_timeout = "), (".env", b"A=\xff\xfe\n"), ("school/config.toml", b"\xff")],
)
def test_a_file_that_can_t_be_read_is_refused_with_the_home_s_name(root, file, content):
    (root / file).write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        load_settings()
    assert str(root) in raised.value.message


def test_settings_in_force_can_t_be_changed(root):
    with pytest.raises(ValueError, match="frozen"):
        load_settings().student_timeout = 5


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("512", 512),
        ("1k", 1024),
        ("512m", 512 << 20),
        ("2g", 2 << 30),
        ("2G", 2 << 30),
        ("2gb", 2 << 30),
        ("2GiB", 2 << 30),
        (" 1.5g ", 3 << 29),
        ("1t", 1 << 40),
    ],
)
def test_a_size_is_bytes_in_powers_of_1024(text, size):
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "g", "2x", "-1g", "0", "nan", "inf", "1,5g", "2 apples"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ConfigError, match="size"):
        size_bytes(text)


def test_who_decided_each_setting_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("SCHOOL_HOME", str(tmp_path))
    monkeypatch.setenv("SCHOOL_MAX_BEADS", "3")
    monkeypatch.setenv("HANDOFF_TIMEOUT", "50")
    (tmp_path / ".env").write_text("SCHOOL_MAX_BEADS=4\nSCHOOL_MAX_STARTS=2\nDEFAULT_POLL_INTERVAL=7\nOTHER=1\n")
    (tmp_path / "school").mkdir()
    (tmp_path / "school" / "config.toml").write_text("max_starts = 1\nstudent_pids = 100\n")
    found = decided_by()
    assert (found["max_beads"], found["handoff_timeout"]) == ("environment", "environment")
    assert (found["max_starts"], found["default_poll_interval"]) == (str(tmp_path / ".env"),) * 2
    assert found["student_pids"] == str(tmp_path / "school" / "config.toml")
    assert found["student_timeout"] == "default"
    assert set(found) == set(Settings.model_fields)


def test_a_dotenv_of_the_folder_at_hand_decides_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SCHOOL_HOME", str(tmp_path / "home"))
    (tmp_path / ".env").write_text("SCHOOL_MAX_BEADS=99\nSCHOOL_STUDENT_RUNTIME=evil\n")
    monkeypatch.chdir(tmp_path)
    assert load_settings().max_beads == 8
    assert set(decided_by().values()) <= {"default", "environment"}

"""Node, Go and Rust repositories: toolchain from the distribution, set up as the school proposes, checked without a network.

The student is a command: what counts here is the image, for students and for the check.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.standing]

NODE = {
    "package.json": json.dumps(
        {
            "name": "demo",
            "version": "1.0.0",
            "workspaces": ["packages/*"],
            "dependencies": {"is-odd": "3.0.1"},
            "scripts": {"test": "node --test"},
        }
    ),
    "packages/near/package.json": json.dumps({"name": "near", "version": "1.0.0", "main": "index.js"}),
    "packages/near/index.js": "module.exports = () => 3\n",
    "demo.test.js": "const test = require('node:test'); const assert = require('node:assert')\n"
    "test('odd', () => assert(require('is-odd')(require('near')())))\n",
    ".gitignore": "node_modules/\n",
}
NODE_CHANGE = """\
echo 'module.exports = () => 5' > packages/near/index.js
echo "const t = require('node:test'); t('five', () => require('node:assert').equal(require('near')(), 5))" > five.test.js
npm test
"""
GO = {
    "go.mod": "module demo\n\ngo 1.19\n\nrequire example.com/x v1.0.0\n",
    "demo.go": 'package demo\n\nimport "example.com/x"\n\nfunc One() int { return x.X() }\n',
    "demo_test.go": 'package demo\n\nimport "testing"\n\nfunc TestOne(t *testing.T) {\n\tif One() != 1 {\n\t\tt.Fatal()\n\t}\n}\n',
    "vendor/modules.txt": "# example.com/x v1.0.0\n## explicit\nexample.com/x\n",
    "vendor/example.com/x/x.go": "package x\n\nfunc X() int { return 1 }\n",
}
GO_CHANGE = """\
printf 'package demo\\n\\nfunc Two() int { return One() + 1 }\\n' > two.go
printf 'package demo\\n\\nimport "testing"\\n\\nfunc TestTwo(t *testing.T) { if Two() != 2 { t.Fatal() } }\\n' > two_test.go
go test ./...
"""
RUST = {
    "Cargo.toml": '[package]\nname = "demo"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nx = "1"\n',
    "src/lib.rs": "pub fn one() -> i32 { x::x() }\n#[test]\nfn is_one() { assert_eq!(one(), 1) }\n",
    ".cargo/config.toml": '[source.crates-io]\nreplace-with = "vendored-sources"\n'
    '[source.vendored-sources]\ndirectory = "vendor"\n',
    "vendor/x/Cargo.toml": '[package]\nname = "x"\nversion = "1.0.0"\nedition = "2021"\n',
    "vendor/x/src/lib.rs": "pub fn x() -> i32 { 1 }\n",
    "vendor/x/.cargo-checksum.json": '{"files": {}}',
    ".gitignore": "/target\n/Cargo.lock\n",
}
RUST_CHANGE = """\
printf 'pub fn two() -> i32 { one() + 1 }\\n#[test]\\nfn is_two() { assert_eq!(two(), 2) }\\n' >> src/lib.rs
cargo test --offline
"""


@pytest.mark.parametrize(
    ("files", "command", "changed", "says"),
    [
        (NODE, NODE_CHANGE, ["five.test.js", "packages/near/index.js"], "# pass 2"),
        (GO, GO_CHANGE, ["two.go", "two_test.go"], "ok"),
        (RUST, RUST_CHANGE, ["src/lib.rs"], "2 passed"),
    ],
    ids=["node", "go", "rust"],
)
def test_a_change_passes_the_check_that_is_proposed(school, git, set_up, tmp_path, files, command, changed, says):
    repo = tmp_path / "repo"
    for name, text in files.items():
        path = Path(repo, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A", "-f")
    git(repo, "commit", "-qm", "Start")
    set_up(repo)
    done = school.spawn(repo, "Change it.", "--agent", "command", "--command", f"set -e\n{command}")
    assert (done.code, done.report.get("outcome")) == (0, "accepted"), done.stderr
    assert done.report["verification"]["status"] == "passed"
    assert says in done.report["verification"]["log"]
    assert done.report["files_changed"] == changed

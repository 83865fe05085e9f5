from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import GitError, UsageError
from orchestrator.git.freeze import freeze
from orchestrator.git.landing import check_branch_free, create_branch, delete_ref, diff, keep, kept_ref
from orchestrator.git.repository import open_repository
from orchestrator.git.workspace import export_tree


def frozen_workspace(school, repo, text="new\n"):
    workspace = school.workspace(repo)
    (workspace.tree / "README").write_text(text)
    return workspace, freeze(workspace, "Change").head_sha


def test_a_result_is_kept_and_only_an_accepted_one_gets_a_branch(kit, school, repo_path):
    (repo_path / "README").write_text("uncommitted\n")
    repo = open_repository(repo_path)
    before = kit.snapshot(repo_path)
    workspace, head = frozen_workspace(school, repo)
    keep(workspace, "bead-1", head)
    assert kit.snapshot(repo_path) == before  # but for the pack and refs/school
    assert (
        kit.git(repo_path, "for-each-ref", "--format=%(objectname) %(refname)", "refs/school")
        == f"{head} refs/school/bead-1"
    )
    keep(workspace, "bead-1", head)
    plan = check_branch_free(repo, "bead-2")
    assert (plan.name, plan.reason) == ("school/bead-2", "")
    create_branch(repo, "school/bead-1", head)
    create_branch(repo, "school/bead-1", head)
    assert kit.git(repo_path, "rev-parse", "school/bead-1") == head
    assert kit.git(repo_path, "status", "--porcelain") == "M README"
    kit.git(repo_path, "fsck", "--strict")
    assert not list((repo_path / ".git/objects/pack").glob("tmp_*"))


def test_the_kept_commit_survives_gc_and_the_loss_of_the_workspace(kit, school, repo):
    workspace, head = frozen_workspace(school, repo)
    keep(workspace, "bead-1", head)
    kit.git(repo.root, "gc", "-q", "--prune=now")
    tree = export_tree(open_repository(repo.root), head, school.root / "verify", lock_dir=school.locks)
    assert (tree.tree / "README").read_text() == "new\n"


def test_a_ref_that_points_elsewhere_is_never_moved(kit, school, repo):
    workspace, head = frozen_workspace(school, repo)
    for ref in (kept_ref("bead-1"), "refs/heads/school/bead-1"):
        kit.git(repo.root, "update-ref", ref, repo.head_sha)
    with pytest.raises(GitError, match="refs/school/bead-1"):
        keep(workspace, "bead-1", head)
    with pytest.raises(GitError, match="refs/heads/school/bead-1"):
        create_branch(repo, "school/bead-1", head)
    assert kit.git(repo.root, "rev-parse", kept_ref("bead-1"), "school/bead-1").split() == [repo.head_sha] * 2


def test_a_branch_named_school_leads_to_another_name_before_the_start(kit, school, repo):
    kit.git(repo.root, "branch", "school")
    kit.git(repo.root, "pack-refs", "--all")
    plan = check_branch_free(repo, "bead-1")
    assert plan.name == "school-bead-1"
    assert "named school" in plan.reason
    create_branch(repo, plan.name, repo.head_sha)
    with pytest.raises(UsageError, match="refs/heads/school-bead-1") as caught:
        check_branch_free(repo, "bead-1")
    assert caught.value.next_step


@pytest.mark.parametrize(
    "ref", ["refs/heads/school/bead-1", "refs/school/bead-1", "refs/heads/school/bead-1/x", "refs/school"]
)
def test_a_ref_in_the_way_is_a_usage_error(kit, repo, ref):
    kit.git(repo.root, "update-ref", ref, repo.head_sha)
    with pytest.raises(UsageError, match=ref):
        check_branch_free(repo, "bead-1")


def test_refs_of_the_school_are_deleted_and_no_others(kit, repo):
    kit.git(repo.root, "update-ref", kept_ref("bead-1"), repo.head_sha)
    assert not delete_ref(repo, kept_ref("bead-1"), "1" * 40)
    assert delete_ref(repo, kept_ref("bead-1"), repo.head_sha)
    assert delete_ref(repo, kept_ref("bead-1"), repo.head_sha)
    with pytest.raises(GitError, match="not a ref of the school"):
        delete_ref(repo, "refs/heads/main", repo.head_sha)
    assert kit.git(repo.root, "rev-parse", "main") == repo.head_sha


def test_a_diff_of_one_path_takes_it_literally(kit, school, repo):
    workspace = school.workspace(repo)
    kit.write(workspace.tree, {"*": "star\n", "other": "o\n"})
    head = freeze(workspace, "Star").head_sha
    keep(workspace, "bead-1", head)
    patch = diff(repo, workspace.base_sha, head, ["*"])
    assert b"+star" in patch
    assert b"other" not in patch


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can land in another user's repository")
def test_what_lands_in_somebodys_repository_is_theirs(kit, school, repo_path):
    for folder, _, files in os.walk(repo_path):
        for name in ("", *files):
            os.chown(Path(folder, name), 10002, 10002)
    kit.git(repo_path, "config", "core.logAllRefUpdates", "always")
    os.chown(repo_path / ".git/config", 10002, 10002)
    repo = open_repository(repo_path)
    workspace, head = frozen_workspace(school, repo)
    keep(workspace, "bead-1", head)
    create_branch(repo, "school/bead-1", head)
    assert {path.lstat().st_uid for path in repo_path.rglob("*")} == {10002}

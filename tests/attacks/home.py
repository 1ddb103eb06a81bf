"""Attacks on the files of the user outside of the workspace: secrets, settings, programs, temporary folders."""

import os
import stat

from base import (
    attack, must, must_come, must_read, read, removed_later, restored, run, token, unique,
)

TOPIC = "home"


def must_append(path):
    text = token()
    with restored(path):
        with open(path, "a") as file:
            file.write(f"# {text}\n")
        must_read(path, text)


def must_create(path, text="planted\n"):
    with removed_later(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, text.encode())
        os.close(fd)
        must_read(path, text)


@attack(TOPIC)
def write_home_bashrc(world):
    must_append(world.in_home(".bashrc"))


@attack(TOPIC)
def write_home_new_file(world):
    must_create(world.in_home(".profile"))


@attack(TOPIC)
def write_authorized_keys(world):
    must_append(world.in_home(".ssh/authorized_keys"))


@attack(TOPIC)
def write_tmp_shared(_world):
    must_create(f"/tmp/{token()}")


@attack(TOPIC)
def write_dev_shm(_world):
    must_create(f"/dev/shm/{token()}")


@attack(TOPIC)
def write_var_tmp(_world):
    must_create(f"/var/tmp/{token()}")


@attack(TOPIC)
def chmod_home_file(world):
    must_change_mode(world.in_home("notes.txt"))


@attack(TOPIC)
def chmod_home_bashrc(world):
    must_change_mode(world.in_home(".bashrc"))


def must_change_mode(path):
    mode = stat.S_IMODE(os.stat(path).st_mode)
    os.chmod(path, 0)
    try:
        must(stat.S_IMODE(os.stat(path).st_mode) == 0)
    finally:
        os.chmod(path, mode)


@attack(TOPIC)
def utime_home_bashrc(world):
    path = world.in_home(".bashrc")
    os.utime(path, (1, 1))
    must(os.stat(path).st_mtime == 1)


@attack(TOPIC)
def truncate_home_file(world):
    path = world.in_home("notes.txt")
    with restored(path):
        os.truncate(path, 0)
        must(os.path.getsize(path) == 0)


@attack(TOPIC)
def truncate_by_open_readonly(world):
    path = world.in_home("notes.txt")
    with restored(path):
        os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))
        must(os.path.getsize(path) == 0)


@attack(TOPIC)
def rename_ws_itself(world):
    away = world.workspace + ".away"
    os.rename(world.workspace, away)
    try:
        must(not os.path.exists(world.workspace))
    finally:
        os.rename(away, world.workspace)


@attack(TOPIC)
def read_ssh_key(world):
    must_read(world.in_home(".ssh/id_canary"), world.victim["secrets"]["ssh"])


@attack(TOPIC)
def read_aws(world):
    must_read(world.in_home(".aws/credentials"), world.victim["secrets"]["aws"])


@attack(TOPIC)
def read_ssh_key_by_symlink(world):
    link = world.in_workspace("key.soft")
    with removed_later(link):
        os.symlink(world.in_home(".ssh/id_canary"), link)
        must_read(link, world.victim["secrets"]["ssh"])


@attack(TOPIC)
def read_ssh_key_by_hardlink(world):
    link = world.in_workspace("key.hard")
    with removed_later(link):
        os.link(world.in_home(".ssh/id_canary"), link)
        must_read(link, world.victim["secrets"]["ssh"])


@attack(TOPIC)
def rename_ssh_into_ws(world):
    taken = world.in_workspace("taken")
    os.rename(world.in_home(".ssh"), taken)
    try:
        must_read(os.path.join(taken, "id_canary"), world.victim["secrets"]["ssh"])
    finally:
        os.rename(taken, world.in_home(".ssh"))


@attack(TOPIC)
def plant_program_on_path(world):
    """The folder is the first on the search path of the user's shell and of the agent."""
    path = world.in_home("bin/team-attack-program")
    with removed_later(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
        os.write(fd, b"#!/bin/sh\necho planted\n")
        os.close(fd)
        ran = run(["sh", "-c", "team-attack-program"])
        must(ran.stdout == "planted\n")


@attack(TOPIC)
def overwrite_running_program(world):
    fd = os.open(world.in_home("bin/daemon"), os.O_WRONLY)
    os.close(fd)


@attack(TOPIC)
def replace_running_program(world):
    path, fresh = world.in_home("bin/daemon"), world.in_home("bin/daemon.new")
    before = read(path)
    with removed_later(fresh):
        for content in (b"#!/bin/sh\necho replaced\n", before):
            with open(fresh, "wb") as file:
                file.write(content)
            os.chmod(fresh, 0o755)
            os.rename(fresh, path)
            must(read(path) == content)


@attack(TOPIC)
def poison_cargo_registry(world):
    must_append(world.in_home(".cargo/registry/src/index/crate-1.0.0/lib.rs"))


# The room that an attempt takes on the disk, in bytes. Nothing would stop it before the disk is full.
ROOM = 256 << 20


@attack(TOPIC)
def fill_disk(world):
    path = world.in_workspace("room")
    with removed_later(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(fd, 0, ROOM)
            must(os.fstat(fd).st_blocks * 512 >= ROOM)
        finally:
            os.close(fd)


def must_run_later(world, spool, lines):
    """Puts a file into a spool, and waits until the victim, which stands for the daemon, has run the command in it."""
    text = token()
    with open(os.path.join(world.outside, "spool", spool, unique()), "x") as job:
        job.write(lines(f"echo {text}"))
    must_come(lambda: any(line.startswith("job ") and text in line for line in world.received()))


@attack(TOPIC)
def crontab_entry(world):
    must_run_later(world, "cron", lambda command: f"* * * * * {command}\n")


@attack(TOPIC)
def at_job(world):
    must_run_later(world, "at", lambda command: f"#!/bin/sh\n{command}\n")

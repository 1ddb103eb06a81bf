#!/usr/bin/env python3
"""Runs a program as containers do: a filter refuses some system calls.

    refuse_calls.py namespaces PROGRAM NAME ARGUMENT...   refuses namespaces and mounts
    refuse_calls.py landlock PROGRAM NAME ARGUMENT...     refuses Landlock
    refuse_calls.py --landlock                            prints the version of Landlock of this kernel; 0 for none

PROGRAM runs under this NAME, with these arguments.
"""

import ctypes
import errno
import os
import struct
import sys

sys.dont_write_bytecode = True

# ruff: noqa: E402
import kernel

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
REFUSED = {
    "namespaces": [
        "unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fspick",
        "mount_setattr",
    ],
    "landlock": ["landlock_create_ruleset", "landlock_restrict_self"],
}
# The flags of clone that make a namespace.
NEW = 0x7E020000

LOAD, EQUAL, SET, GIVE = 0x20, 0x15, 0x45, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def refuse(what):
    """Binds this process to the filter. As in containers, clone3 does not exist: a filter cannot read its flags."""
    code = lambda op, k, jt=0, jf=0: struct.pack("=HBBI", op, jt, jf, k)
    allow, refused = code(GIVE, ALLOW), code(GIVE, ERRNO | errno.EPERM)
    # Offsets in the data of a call: its number, its architecture, and the low half of its first argument.
    steps = [code(LOAD, 4), code(EQUAL, ARCH[kernel.MACHINE], 1), allow, code(LOAD, 0)]
    for name in REFUSED[what]:
        steps += [code(EQUAL, kernel.number(name), 0, 1), refused]
    steps += [code(EQUAL, kernel.number("clone3"), 0, 1), code(GIVE, ERRNO | errno.ENOSYS)]
    if what == "namespaces":
        steps += [code(EQUAL, kernel.number("clone"), 0, 3), code(LOAD, 16), code(SET, NEW, 0, 1), refused]
    steps += [allow]
    text = b"".join(steps)
    program = Program(len(steps), text)
    prctl = kernel.LIBC.prctl
    kernel.checked(prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3))
    kernel.checked(prctl(PR_SET_SECCOMP, ctypes.c_ulong(MODE_FILTER), ctypes.byref(program), *[ctypes.c_ulong(0)] * 2))


def landlock():
    try:
        return kernel.call("landlock_create_ruleset", 0, 0, 1)
    except OSError:
        return 0


def main(args):
    if args == ["--landlock"]:
        print(landlock())
        return
    refuse(args[0])
    os.execv(args[1], args[2:])


if __name__ == "__main__":
    main(sys.argv[1:])

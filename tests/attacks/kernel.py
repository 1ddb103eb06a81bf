"""System calls that the standard library of Python does not have, on x86_64 and aarch64."""

import ctypes
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
LIBC.mount.restype = ctypes.c_int

MACHINE = platform.machine()

# The numbers of x86_64 and of aarch64, which follow the common table.
_NUMBERS = {
    "socket": (41, 198),
    "ptrace": (101, 117),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "unshare": (272, 97),
    "clone": (56, 220),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "perf_event_open": (298, 241),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "shmget": (29, 194),
    "shmctl": (31, 195),
    "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "pidfd_open": (434, 434),
    "clone3": (435, 435),
    "pidfd_getfd": (438, 438),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "tgkill": (234, 131),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183),
    "ioprio_set": (251, 30),
    "ioprio_get": (252, 31),
    "sched_setattr": (314, 274),
    "sched_getattr": (315, 275),
    "rt_sigqueueinfo": (129, 138),
}

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096


def number(name):
    return _NUMBERS[name][0 if MACHINE == "x86_64" else 1]


def checked(result):
    """Raises the error of a call that returned -1."""
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def call(name, *args):
    """Makes a system call. Integers are passed with 64 bits."""
    given = number(name) if isinstance(name, str) else name
    wide = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return checked(LIBC.syscall(ctypes.c_long(given), *wide))


def mount(source, target, kind, flags, data=None):
    text = [None if part is None else part.encode() for part in (source, target, kind)]
    checked(LIBC.mount(*text, ctypes.c_ulong(flags), data))


def umount(target, flags=0):
    checked(LIBC.umount2(target.encode(), flags))

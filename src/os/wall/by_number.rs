//! A search by the number of a system call, in front of a filter that compares with one number after the other.
//!
//! The kernel runs a filter for each number when it is installed, and remembers which calls are always allowed. So most
//! calls are allowed after a few comparisons, or without any.

use nix::errno::Errno;
use nix::libc;
use seccompiler::sock_filter;
use std::collections::BTreeMap;
use std::io;

/// The kernel's name of this architecture, from its `audit.h`. A filter for another one gets all calls.
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

/// The lowest number of the x32 interface.
const X32: u32 = 0x4000_0000;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const GO_ON: u32 = libc::BPF_JMP | libc::BPF_JA;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// The places of the number and of the architecture in the data about a call.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// The fate of a call, as far as its number tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// It fails with EPERM.
    Refused,
    /// It fails with ENOSYS, as if it did not exist.
    Absent,
    /// The filter behind looks at its arguments.
    Filtered,
}

/// The calls from a number on, up to the next one.
type Range = (u32, Verdict);

/// Returns a program that lets `filter` judge only calls that need it. Calls that are not in `verdicts` are allowed, and
/// those of the x32 interface are absent. Calls of another architecture are judged by the filter.
pub(super) fn in_front_of(
    filter: &[sock_filter],
    verdicts: &BTreeMap<libc::c_long, Verdict>,
) -> io::Result<Vec<sock_filter>> {
    let ranges = ranges(verdicts)?;
    let tree = tree_len(&ranges);
    let mut program = vec![
        instruction(LOAD, ARCHITECTURE_AT, 0)?,
        instruction(IF_EQUAL, ARCHITECTURE, 1)?,
        // Over the load of the number and the tree.
        instruction(GO_ON, u32::try_from(1 + tree).map_err(io::Error::other)?, 0)?,
        instruction(LOAD, NUMBER_AT, 0)?,
    ];
    let end = program.len() + tree;
    add_tree(&mut program, &ranges, end)?;
    program.extend_from_slice(filter);
    Ok(program)
}

/// Returns ranges that cover all numbers, in their order; no two neighbours have the same verdict.
fn ranges(verdicts: &BTreeMap<libc::c_long, Verdict>) -> io::Result<Vec<Range>> {
    let mut starts = BTreeMap::from([(0, Verdict::Allowed)]);
    for (number, verdict) in verdicts {
        let number = u32::try_from(*number).map_err(io::Error::other)?;
        starts.insert(number, *verdict);
        starts.insert(number + 1, Verdict::Allowed);
    }
    starts.insert(X32, Verdict::Absent);
    let mut ranges: Vec<Range> = starts.into_iter().collect();
    ranges.dedup_by_key(|(_, verdict)| *verdict);
    Ok(ranges)
}

/// Returns the number of instructions of a tree: one for each range, and one between two.
fn tree_len(ranges: &[Range]) -> usize {
    2 * ranges.len() - 1
}

/// Adds a binary search over the ranges. The filter begins at `end`.
fn add_tree(program: &mut Vec<sock_filter>, ranges: &[Range], end: usize) -> io::Result<()> {
    let (lower, higher) = ranges.split_at(ranges.len() / 2);
    match (lower, higher) {
        ([], [(_, verdict)]) => {
            let rest = u32::try_from(end - program.len() - 1).map_err(io::Error::other)?;
            program.push(match verdict {
                Verdict::Allowed => instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0)?,
                Verdict::Refused => instruction(RETURN, error(Errno::EPERM), 0)?,
                Verdict::Absent => instruction(RETURN, error(Errno::ENOSYS), 0)?,
                Verdict::Filtered => instruction(GO_ON, rest, 0)?,
            });
            Ok(())
        }
        (_, [(first, _), ..]) => {
            program.push(instruction(IF_AT_LEAST, *first, tree_len(lower))?);
            add_tree(program, lower, end)?;
            add_tree(program, higher, end)
        }
        (_, []) => Ok(()),
    }
}

/// Returns the result of a filter by which a call fails.
fn error(number: Errno) -> u32 {
    libc::SECCOMP_RET_ERRNO | number as u32
}

/// Makes an instruction; a jump passes over `over` instructions if its condition holds.
fn instruction(code: u32, k: u32, over: usize) -> io::Result<sock_filter> {
    Ok(sock_filter {
        code: u16::try_from(code).map_err(io::Error::other)?,
        jt: u8::try_from(over).map_err(io::Error::other)?,
        jf: 0,
        k,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does. Returns the result, and the number of instructions.
    fn run(program: &[sock_filter], architecture: u32, number: u32) -> (u32, usize) {
        let (mut at, mut loaded, mut steps) = (0, 0, 0);
        loop {
            let now = &program[at];
            (at, steps) = (at + 1, steps + 1);
            match u32::from(now.code) {
                LOAD => loaded = if now.k == ARCHITECTURE_AT { architecture } else { number },
                IF_EQUAL => at += usize::from(if loaded == now.k { now.jt } else { now.jf }),
                IF_AT_LEAST => at += usize::from(if loaded >= now.k { now.jt } else { now.jf }),
                GO_ON => at += usize::try_from(now.k).unwrap(),
                RETURN => return (now.k, steps),
                code => panic!("unknown instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn each_call_is_judged_by_its_number() {
        let by_filter = libc::SECCOMP_RET_KILL_PROCESS;
        let filter = [instruction(RETURN, by_filter, 0).unwrap()];
        let filtered = [0, 1, 41, 42, 56, 425, 426, 427].into_iter().chain((430..530).step_by(2));
        let refused = [101, 165, 166, 441];
        let mut verdicts: BTreeMap<_, _> = filtered.map(|call| (call, Verdict::Filtered)).collect();
        verdicts.extend(refused.map(|call| (call, Verdict::Refused)));
        verdicts.extend([435, 437].map(|call| (call, Verdict::Absent)));
        let program = in_front_of(&filter, &verdicts).unwrap();
        for number in (0..600).chain([X32 - 1, X32, X32 + 41, u32::MAX]) {
            let (result, steps) = run(&program, ARCHITECTURE, number);
            let expected = match verdicts.get(&i64::from(number)) {
                _ if number >= X32 => error(Errno::ENOSYS),
                Some(Verdict::Absent) => error(Errno::ENOSYS),
                Some(Verdict::Refused) => error(Errno::EPERM),
                Some(Verdict::Filtered) => by_filter,
                Some(Verdict::Allowed) | None => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(result, expected, "{number}");
            assert!(steps < 15, "{number}: {steps}");
            assert_eq!(run(&program, 0x4000_0003, number).0, by_filter, "{number}");
        }
    }
}

//! P13: complete commands, compared with a program that does nothing.

use crate::bench_team::{BenchTeam, OWNER, live};
use crate::figure::{Figure, Size, Target, median};
use crate::scripts::Scripts;
use std::process::{Command, Stdio};
use std::time::Instant;

const LS: [&str; 1] = ["ls"];
const SEND: [&str; 3] = ["send", OWNER, "start with the schema"];

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let (small, large) = (BenchTeam::new(), BenchTeam::new());
    let lives = [live(&small.dir), live(&large.dir)];
    let members = Scripts::of_teammates(&large, size.many);
    let [mut nothing, mut ls, mut send, mut large_ls, mut large_send] =
        [(); 5].map(|()| Vec::new());
    for _ in 0..size.rounds * size.runs {
        nothing.push(run(&mut Command::new("true")));
        ls.push(run(&mut team(&small, &LS)));
        send.push(run(&mut team(&small, &SEND)));
        large_ls.push(run(&mut team(&large, &LS)));
        large_send.push(run(&mut team(&large, &SEND)));
    }
    drop((members, lives));
    let reference = Some(median(&nothing));
    let figure = |measure: String, took: &[f64], target| Figure {
        id: "P13",
        measure,
        unit: "ms",
        ours: median(took),
        reference,
        target,
    };
    let many = size.many;
    vec![
        figure("`team ls`, whole process; `true`".into(), &ls, Target::TimesAtMost(3.0)),
        figure(
            "`team send`, whole process, `fsync = always`; `true`".into(),
            &send,
            Target::TimesAtMost(3.0),
        ),
        figure(format!("`team ls` with {many} live members"), &large_ls, Target::Below(15.0)),
        figure(format!("`team send` with {many} live members"), &large_send, Target::Below(15.0)),
    ]
}

fn team(team: &BenchTeam, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_team"));
    command.args(words).current_dir(team.folder.path()).env_clear().env("PATH", "/usr/bin:/bin");
    command
}

/// Returns the milliseconds from the start to the exit.
fn run(command: &mut Command) -> f64 {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let ended = command.status().unwrap();
    let took = start.elapsed().as_secs_f64() * 1e3;
    assert!(ended.success(), "{command:?}");
    took
}

//! P1, P2: one send, in one process.

use crate::bench_team::{BenchTeam, bus, live, send, sender, text};
use crate::figure::{Figure, Size, Target, median};
use agent_team::store::Fsync;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let [mut raw, mut ours, mut raw_synced, mut ours_synced] = [(); 4].map(|()| Vec::new());
    for _ in 0..size.rounds {
        let team = BenchTeam::new();
        let file = team.make_raw();
        let line = text("") + "\n";
        raw.push(each(size.sends, || locked_append(&file, &line)));
        ours.push(each_send(&team, Fsync::Never, size.sends));
        let kept = open(&file);
        raw_synced.push(each(size.synced, || {
            append(&kept, &line);
            kept.sync_data().unwrap();
        }));
        ours_synced.push(each_send(&team, Fsync::Always, size.synced));
    }
    let figure = |id, measure: &str, ours: &[f64], reference: &[f64], most| Figure {
        id,
        measure: measure.into(),
        unit: "us",
        ours: median(ours),
        reference: Some(median(reference)),
        target: Target::TimesAtMost(most),
    };
    vec![
        figure("P1", "send, `fsync = never`, p50; open + flock + append + close", &ours, &raw, 2.0),
        figure(
            "P2",
            "send, `fsync = always`, p50; append + fdatasync",
            &ours_synced,
            &raw_synced,
            1.1,
        ),
    ]
}

/// Returns the median time of one call, in microseconds.
fn each(times: usize, mut call: impl FnMut()) -> f64 {
    let took = (0..times).map(|_| {
        let start = Instant::now();
        call();
        start.elapsed().as_secs_f64() * 1e6
    });
    median(&took.collect::<Vec<_>>())
}

fn each_send(team: &BenchTeam, fsync: Fsync, times: usize) -> f64 {
    let _life = live(&team.dir);
    let (bus, from) = (bus(&team.dir, fsync), sender());
    let text = text("");
    each(times, || send(&bus, &from, text.clone()))
}

fn locked_append(path: &Path, line: &str) {
    let file = open(path);
    fs4::FileExt::lock(&file).unwrap();
    append(&file, line);
}

fn open(path: &Path) -> File {
    OpenOptions::new().append(true).open(path).unwrap()
}

fn append(mut file: &File, line: &str) {
    file.write_all(line.as_bytes()).unwrap();
}

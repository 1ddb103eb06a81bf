//! Clones on another host, without a network: the test hands the bundles over.

use super::{Place, write};
use crate::os::command::CommandSetup;
use crate::wire::AgentName;
use crate::wire::host_order::{CloneStart, SavedCommits};
use crate::wire::isolation::{CloneBase, ClonePlace};
use crate::work::clone::{CloneOrder, CloneOrigin, create};
use crate::work::elsewhere::Project;
use crate::work::mirror::{self, Mirror};
use crate::work::remove::drop_clone;
use crate::work::save::Saver;
use crate::work::take::{Merged, Taker, WorkToTake, offer};
use std::path::{Path, PathBuf};

/// The user's repository on one host, and clones on another one.
struct TwoHosts {
    place: Place,
    /// The folder for clones on the other host.
    clones: PathBuf,
}

impl TwoHosts {
    fn new() -> Self {
        let place = Place::new();
        let clones = place.folder.path().join("other/work");
        Self { place, clones }
    }

    fn project(&self) -> Project {
        Project::find(carol(), &self.place.main(), &self.place.environment()).unwrap()
    }

    fn bundle(&self) -> PathBuf {
        self.place.folder.path().join("it.bundle")
    }

    fn own_clones(&self) -> PathBuf {
        self.place.folder.path().join("work")
    }

    /// Sends the start of a clone to the other host. Returns it, and the size of the bundle, if one was needed.
    fn send(&self, known: Option<&ClonePlace>) -> (CloneStart, Option<u64>) {
        let (project, own) = (self.project(), self.own_clones());
        let start = project.pin_start(CloneBase::Snapshot, &own, known).unwrap();
        let commits = project.commits(&start, CloneBase::Snapshot, &own).unwrap();
        let (env, empty) = (self.place.environment(), self.place.folder.path().join("empty"));
        let prepare = |bundle: Option<&Path>| {
            Mirror::prepare(&self.clones, &env, &commits, (&empty, bundle)).unwrap()
        };
        let Some(lacking) = prepare(None) else { return (start, None) };
        let bytes = project.bundle(&self.bundle(), &commits, &lacking).unwrap();
        assert_eq!(prepare(Some(&self.bundle())), None, "the bundle has all that was lacking");
        (start, Some(bytes))
    }

    fn clone_on_other(&self, start: CloneStart) -> Saver {
        let order = CloneOrder {
            name: carol(),
            clones: self.clones.clone(),
            origin: CloneOrigin::Mirror { host: "ann".into(), start },
            environment: self.place.environment(),
        };
        let place = create(&order).unwrap();
        let setup = CommandSetup {
            env: self.place.environment(),
            run_id: format!("run-{}", self.place.folder.path().display()).replace('/', "-"),
            walls: None,
            read_only: Vec::new(),
            granted_hosts: Vec::new(),
        };
        Saver { name: carol(), place, setup }
    }

    /// Brings the saved work back. Returns the size of the bundle, if one was needed.
    fn collect(&self) -> Option<u64> {
        let project = self.project();
        let mirror = Mirror::open(&self.clones, &self.place.environment()).unwrap().unwrap();
        let (saved, bytes) = mirror.send(&carol(), &project.known(), &self.bundle()).unwrap();
        project.import(&saved, bytes.map(|_| self.bundle()).as_deref()).unwrap();
        bytes
    }

    fn show(&self, what: &str) -> String {
        self.place.git(&self.place.main(), &format!("show refs/team/carol/{what}"))
    }
}

fn carol() -> AgentName {
    AgentName::member("carol").unwrap()
}

#[test]
fn a_clone_on_another_host_begins_with_what_the_user_sees_and_its_work_comes_back() {
    let hosts = TwoHosts::new();
    let main = hosts.place.main();
    write(&main.join("new.txt"), "new\n");
    let before = hosts.place.state_of_user();
    let (start, sent) = hosts.send(None);
    assert!(sent.is_some_and(|bytes| bytes < 4000), "{sent:?}");
    let saver = hosts.clone_on_other(start);
    let clone = PathBuf::from(&saver.place.path);
    assert_eq!(std::fs::read_to_string(clone.join("new.txt")).unwrap(), "new\n");
    assert_eq!(hosts.collect(), None, "nothing is saved");
    write(&clone.join("result.txt"), "42\n");
    saver.save().unwrap();
    assert!(hosts.collect().is_some());
    assert_eq!(hosts.show("wip:result.txt"), "42");
    assert_eq!(hosts.collect(), None, "it is here");
    assert_eq!(hosts.place.state_of_user(), before);
    // It is offered there, and merged here.
    let offered = offer(&saver, &hosts.place.team).unwrap();
    assert!(matches!(&offered, Merged::Clean { stat } if stat.contains("result.txt")));
    hosts.collect();
    let place = hosts.project().place(
        &CloneStart { base: saver.place.base.clone(), wip: None, prefix: String::new() },
        &hosts.own_clones(),
        "gpu1",
    );
    let (team, env) = (hosts.place.team.clone(), hosts.place.environment());
    let taker = |place: ClonePlace| Taker {
        team: team.clone(),
        name: carol(),
        place,
        by: AgentName::lead(),
        environment: env.clone(),
    };
    let refused = taker(saver.place.clone()).take(WorkToTake::Offer).unwrap_err().to_string();
    assert!(refused.contains("the files of its project are on ann"), "{refused}");
    taker(place).take(WorkToTake::Offer).unwrap();
    assert_eq!(std::fs::read_to_string(main.join("result.txt")).unwrap(), "42\n");
    // The last save, at the removal, comes as well.
    write(&clone.join("last.txt"), "last\n");
    drop_clone(&saver).unwrap();
    assert!(!clone.exists());
    hosts.collect();
    assert_eq!(hosts.show("wip:last.txt"), "last");
}

#[test]
fn only_what_is_lacking_is_sent() {
    let hosts = TwoHosts::new();
    let (first, _) = hosts.send(None);
    assert_eq!(hosts.send(None), (first, None), "nothing has changed");
    write(&hosts.place.main().join("b.txt"), "b\n");
    let (second, sent) = hosts.send(None);
    assert!(sent.is_some());
    let saver = hosts.clone_on_other(second);
    write(&Path::new(&saver.place.path).join("c.txt"), "c\n");
    saver.save().unwrap();
    hosts.collect();
    // The lead's files as they are now come into the branch from which she can merge.
    write(&hosts.place.main().join("b.txt"), "b2\n");
    let known = ClonePlace { host: "gpu1".into(), ..saver.place.clone() };
    let (again, _) = hosts.send(Some(&known));
    assert_eq!(again.base, saver.place.base);
    let mirror = mirror::folder(&hosts.clones);
    assert_eq!(hosts.place.git(&mirror, "show lead:b.txt"), "b2");
    hosts.place.git(Path::new(&saver.place.path), "fetch -q origin");
    assert_eq!(hosts.place.git(Path::new(&saver.place.path), "show origin/lead:b.txt"), "b2");
}

#[test]
fn work_goes_on_on_a_third_host_and_nothing_that_was_here_is_lost() {
    let mut hosts = TwoHosts::new();
    let (start, _) = hosts.send(None);
    let saver = hosts.clone_on_other(start);
    write(&Path::new(&saver.place.path).join("first.txt"), "1\n");
    saver.save().unwrap();
    hosts.collect();
    let lost = ClonePlace { host: "gpu1".into(), ..saver.place };
    hosts.clones = hosts.place.folder.path().join("third/work");
    let (start, _) = hosts.send(Some(&lost));
    assert!(start.wip.is_some());
    let saver = hosts.clone_on_other(start);
    let clone = Path::new(&saver.place.path);
    assert_eq!(std::fs::read_to_string(clone.join("first.txt")).unwrap(), "1\n");
    write(&clone.join("second.txt"), "2\n");
    saver.save().unwrap();
    hosts.collect();
    assert_eq!(
        (hosts.show("wip:first.txt"), hosts.show("wip:second.txt")),
        ("1".into(), "2".into())
    );
    // A host that knows nothing of it any more does not take it away.
    let before = hosts.place.git(&hosts.place.main(), "rev-parse refs/team/carol/wip");
    hosts.clones = hosts.place.folder.path().join("fourth/work");
    let (start, _) = hosts.send(None);
    let saver = hosts.clone_on_other(start);
    write(&Path::new(&saver.place.path).join("third.txt"), "3\n");
    saver.save().unwrap();
    hosts.collect();
    assert_eq!(hosts.show("wip:third.txt"), "3");
    let main = hosts.place.main();
    hosts.place.git(&main, &format!("merge-base --is-ancestor {before} refs/team/carol/wip"));
    // It is here, so it is neither sent nor merged again.
    let merged = hosts.place.git(&main, "rev-parse refs/team/carol/wip");
    assert_eq!(hosts.collect(), None);
    assert_eq!(hosts.place.git(&main, "rev-parse refs/team/carol/wip"), merged);
}

#[test]
fn an_answer_that_comes_late_takes_nothing_back() {
    let hosts = TwoHosts::new();
    let (start, _) = hosts.send(None);
    let saver = hosts.clone_on_other(start);
    let clone = PathBuf::from(&saver.place.path);
    let answers = ["1", "2"].map(|text| {
        write(&clone.join("c.txt"), text);
        offer(&saver, &hosts.place.team).unwrap();
        let env = hosts.place.environment();
        let mirror = Mirror::open(&hosts.clones, &env).unwrap().unwrap();
        let file = hosts.place.folder.path().join(format!("{text}.bundle"));
        let (saved, _) = mirror.send(&carol(), &[], &file).unwrap();
        (saved, file)
    });
    for (saved, file) in answers.iter().rev() {
        hosts.project().import(saved, Some(file)).unwrap();
    }
    assert_eq!((hosts.show("wip:c.txt"), hosts.show("offer:c.txt")), ("2".into(), "2".into()));
}

#[test]
fn a_new_teammate_of_an_old_name_does_not_get_the_old_work() {
    let mut hosts = TwoHosts::new();
    let (start, _) = hosts.send(None);
    let saver = hosts.clone_on_other(start);
    write(&Path::new(&saver.place.path).join("secret.txt"), "secret");
    saver.save().unwrap();
    hosts.collect();
    hosts.clones = hosts.place.folder.path().join("third/work");
    let (start, _) = hosts.send(None);
    assert_eq!(start.wip, None);
    hosts.clone_on_other(start);
    let mirror = mirror::folder(&hosts.clones);
    let objects = hosts.place.git(&mirror, "rev-list --objects --all");
    assert!(!objects.contains("secret.txt"), "{objects}");
}

#[test]
fn commits_without_their_files_are_not_taken_over() {
    let hosts = TwoHosts::new();
    let (start, _) = hosts.send(None);
    hosts.clone_on_other(start);
    // A commit whose tree is nowhere.
    let main = hosts.place.main();
    let commit =
        format!("tree {}\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n\nx\n", "3".repeat(40));
    write(&hosts.place.folder.path().join("commit"), &commit);
    let line = "hash-object -w -t commit --literally ../commit";
    let wip = hosts.place.git(&main, line);
    let saved = SavedCommits { wip: Some(wip), offer: None };
    assert!(hosts.project().import(&saved, None).is_err());
    assert_eq!(hosts.project().known().len(), 1, "only the base is named");
}

#[test]
fn a_bundle_that_does_not_fit_or_is_broken_is_an_error_and_changes_nothing() {
    let hosts = TwoHosts::new();
    let (start, _) = hosts.send(None);
    let saver = hosts.clone_on_other(start);
    write(&Path::new(&saver.place.path).join("c.txt"), "c\n");
    saver.save().unwrap();
    write(&hosts.bundle(), "no bundle");
    let saved = SavedCommits { wip: Some(saver.place.base.clone()), offer: None };
    let project = hosts.project();
    assert!(project.import(&saved, Some(&hosts.bundle())).is_err());
    let unknown = SavedCommits { wip: Some("1".repeat(40)), offer: None };
    assert!(project.import(&unknown, None).is_err());
    assert_eq!(project.known(), std::slice::from_ref(&saver.place.base));
    let env = hosts.place.environment();
    let mut commits = project
        .commits(
            &CloneStart { base: saver.place.base.clone(), wip: None, prefix: String::new() },
            CloneBase::Head,
            &hosts.own_clones(),
        )
        .unwrap();
    commits.commits.push("2".repeat(40));
    let empty = hosts.place.folder.path().join("empty");
    assert!(
        Mirror::prepare(&hosts.clones, &env, &commits, (&empty, Some(&hosts.bundle()))).is_err()
    );
    let lacking = Mirror::prepare(&hosts.clones, &env, &commits, (&empty, None)).unwrap();
    assert!(lacking.is_some_and(|known| known.contains(&saver.place.base)));
}

#[test]
fn a_shallow_repository_is_not_sent() {
    let hosts = TwoHosts::new();
    let main = hosts.place.main();
    write(&main.join("a.txt"), "second\n");
    hosts.place.git(&main, "commit -qam second");
    let shallow = hosts.place.folder.path().join("shallow");
    let line = format!("clone -q --depth 1 file://{} {}", main.display(), shallow.display());
    hosts.place.git(&main, &line);
    let project = Project::find(carol(), &shallow, &hosts.place.environment()).unwrap();
    let start = project.pin_start(CloneBase::Head, &hosts.own_clones(), None).unwrap();
    let commits = project.commits(&start, CloneBase::Head, &hosts.own_clones()).unwrap();
    let why = project.bundle(&hosts.bundle(), &commits, &[]).unwrap_err().to_string();
    assert!(why.contains("shallow") && why.contains("--unshallow"), "{why}");
}

#[test]
fn a_clone_begins_anew_if_the_repository_does_not_have_what_it_began_with() {
    let hosts = TwoHosts::new();
    let (start, _) = hosts.send(None);
    let project = hosts.project();
    let mut place = project.place(&start, &hosts.own_clones(), "gpu1");
    let (again, _) = hosts.send(Some(&place));
    assert_eq!(again.base, start.base);
    // As after `rm -rf` and a new checkout at the same path.
    place.base = "55537ddb0743499eb91e3f1277283daea4bc8554".into();
    let (anew, _) = hosts.send(Some(&place));
    assert_ne!(anew.base, place.base);
    hosts.clone_on_other(anew);
}

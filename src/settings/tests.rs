//! Tests of the settings as a whole: the order of the layers, trust, refused values.

use super::endpoints::HeaderName;
use super::environment::Environment;
use super::layers::Setting;
use super::model::{ModelChoice, ProviderCredentials, check_price, resolve};
use super::trust::TrustList;
use super::{ConfigRow, Flags, Settings};
use crate::error::{Exit, Failure};
use crate::llm::registry::Access;
use crate::wire::Fsync;
use crate::wire::RestartPolicy;
use crate::wire::budget::{Budget, Budgets};
use crate::wire::money::Money;
use crate::wire::permission::{PermissionMode, Permissions};
use crate::wire::sandbox::{Sandbox, SandboxLevel, SandboxNetwork, SandboxQuestions, SandboxWall};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Default)]
struct Given<'t> {
    variables: &'t [(&'t str, &'t str)],
    folder: &'t str,
    user: &'t str,
    mode: Option<&'t str>,
    is_trusted: bool,
}

impl Given<'_> {
    fn load(&self) -> Result<(Settings, Environment), Failure> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().display().to_string();
        let environment = Environment::of(&[&[("HOME", path.as_str())], self.variables].concat());
        let (folder, config) = (home.path().join("work/.team"), home.path().join(".config/team"));
        let file = write(&folder, self.folder);
        write(&config, self.user);
        if self.is_trusted {
            let risks = Settings::risks_in(&file).unwrap();
            TrustList::of(&environment).set(&folder, Some(risks)).unwrap();
        }
        let settings = Settings::load(&environment, &file, &Flags::of([("--mode", self.mode)]))?;
        Ok((settings, environment))
    }

    fn settings(&self) -> Settings {
        self.load().unwrap().0
    }
}

#[expect(clippy::disallowed_methods, reason = "a test fixture")]
fn write(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("settings.toml");
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(&file, text).unwrap();
    file
}

fn load(variables: &[(&str, &str)], folder: &str) -> Result<Settings, Failure> {
    Given { variables, folder, ..Given::default() }.load().map(|(settings, _)| settings)
}

fn money(number: f64) -> Option<Money> {
    Money::try_from(number).ok()
}

fn row(settings: &Settings, key: &str) -> ConfigRow {
    settings.rows().into_iter().find(|row| row.key == key).unwrap()
}

#[test]
fn the_nearest_layer_wins_and_is_named() {
    let variables = [("TEAM_MAX_ROUNDS", "7"), ("TEAM_RESTART", "always")];
    let file = "max_rounds = 9\nfsync = \"never\"\nrestart = \"on-crash\"";
    let settings = load(&variables, file).unwrap();
    assert_eq!(settings.max_rounds.value, 7);
    assert_eq!(row(&settings, "max_rounds").source, "environment (TEAM_MAX_ROUNDS)");
    assert_eq!(settings.fsync.value, Fsync::Never);
    assert_eq!(settings.restart.value, RestartPolicy::Always);
    assert!(settings.fsync.source.ends_with(".team/settings.toml"));
    assert_eq!(settings.max_teammates, Setting { value: 16, source: "default".into() });
}

#[test]
fn an_unusable_value_is_refused_and_names_file_and_line_or_variable() {
    let failure = load(&[], "max_rounds = 9\nmax_rouns = 1\n").unwrap_err();
    assert!(failure.why.contains("max_rouns"), "{failure}");
    for (text, line) in [
        ("max_rounds = 9\nmax_rouns = 1\n", 2),
        ("\n\n[permissions]\nmodes = 1", 4),
        ("fsync = \"always\"\nrestart = \"on crash\"", 2),
        ("permissions = 1", 1),
        ("\"permissions.mode\" = \"bypass\"", 1),
        ("max_rounds = 1\nmax_rounds = 2", 2),
        ("\n[[hooks]]\nevent = \"task_created\"\ncommand = \" \"", 4),
        ("[[hooks]]\nevent = \"task_created\"\ncommand = \"a\"\ntimeout = 3601", 4),
        ("[[hooks]]\nevent = \"task_created\"\ncommand = \"a\"\ntimout = 1", 4),
        ("[prices.m]\ninput = 1\noutput = 1\nprompt = 1", 4),
        // The message must not quote these lines, since they may hold a secret.
        ("[anthropic]\nheaders = { x = \"a\\r\\nX-Evil: canary\" }", 2),
        ("[anthropic]\nheaders = { \"a b\" = \"canary\" }", 2),
        ("[openai]\nversion = \"canary\"", 2),
        ("[budget]\ntokens = 5", 2),
        ("[budget.team]\ntokens = -5", 2),
        ("[budget.team]\nmoney = -0.5", 2),
        ("[prices.\"m\"]\ninput = 3", 1),
        ("[models.\"m\"]\ncontext = 3", 2),
    ] {
        let failure = load(&[], text).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{text}");
        assert!(failure.what.contains(&format!("settings.toml line {line} ")), "{text}: {failure}");
        assert!(!failure.why.contains("canary"), "{failure}");
    }
    for (name, text, why) in [
        ("TEAM_FSYNC", "maybe", "expected `always` or `never`"),
        ("TEAM_RESTART", "on crash", "`never`, `on-crash`, `always`"),
        ("TEAM_AUTO_CLAIM", "maybe", "neither true nor false"),
        ("TEAM_MODE", "Plan", "plan (nothing is changed until"),
        ("TEAM_MAX_SENDS", "-1", "is not a whole number"),
        ("TEAM_LOCAL_PORTS", "80a", "is neither a list of ports"),
        ("TEAM_BUDGET_TEAM_MONEY", "much", "is not an amount of money"),
    ] {
        let failure = load(&[(name, text)], "").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{name}");
        assert!(failure.what.contains(name) && failure.why.contains(why), "{failure}");
    }
    for text in ["max_rounds = 0", "[permissions]\ntimeout = 0", "[budget.member]\nturns = 0"] {
        assert_eq!(load(&[], text).unwrap_err().exit, Exit::Usage, "{text}");
    }
    assert_eq!(load(&[("TEAM_LOCAL_PORTS", "none")], "").unwrap().local_ports.value, [0; 0]);
    assert!(load(&[("TEAM_AUTO_CLAIM", "true")], "").unwrap().auto_claim.value);
}

#[test]
fn a_folder_loosens_nothing_before_it_is_trusted_and_rules_add_up() {
    let folder = "[permissions]\nmode = \"bypass\"\nallow = [\"bash(ls:*)\"]\n\
        deny = [\"bash(rm:*)\"]\nask = [\"read_file(secrets/**)\"]\n";
    let own = "[permissions]\nmode = \"accept_edits\"\nallow = [\"bash(cargo test:*)\"]\n";
    let (ls, test) = ("bash(ls:*)", "bash(cargo test:*)");
    for (user, mode, is_trusted, in_force, allow) in [
        ("", None, false, PermissionMode::Default, &[][..]),
        ("", None, true, PermissionMode::Bypass, &[ls]),
        (own, None, false, PermissionMode::AcceptEdits, &[test]),
        (own, Some("plan"), true, PermissionMode::Plan, &[ls, test]),
    ] {
        let given = Given { folder, user, mode, is_trusted, ..Given::default() };
        let settings = given.settings();
        let Permissions { mode, rules, .. } = settings.permissions();
        assert_eq!((mode, rules.allow.join(" ")), (in_force, allow.join(" ")));
        assert_eq!((&*rules.deny[0], &*rules.ask[0]), ("bash(rm:*)", "read_file(secrets/**)"));
        let told = settings.ignored.unwrap_or_default();
        for part in ["mode = \"bypass\"", ls, "team trust"] {
            assert_eq!(told.contains(part), !is_trusted, "{in_force}: {told}");
        }
        assert_eq!(told.is_empty(), is_trusted, "{in_force}: {told}");
    }
}

#[test]
fn a_folder_passes_no_variable_on_before_it_is_trusted_and_no_layer_passes_a_key_on() {
    let (folder, user) = ("pass_environment = [\"A\"]", "pass_environment = [\"B\"]");
    let given = Given { folder, user, ..Given::default() };
    let shown = |given: &Given<'_>| row(&given.settings(), "pass_environment").value;
    assert_eq!(shown(&given), "B");
    assert!(given.settings().ignored.unwrap().contains("pass_environment = [\"A\"]"));
    assert_eq!(shown(&Given { is_trusted: true, ..given }), "A, B");
    let failure = load(&[], "\npass_environment = [\"EDITOR\", \"GH_TOKEN\"]").unwrap_err();
    assert!(failure.what.contains("line 2") && failure.why.contains("GH_TOKEN may"), "{failure}");
    let failure = load(&[("TEAM_PASS_ENVIRONMENT", "OPENAI_API_KEY")], "").unwrap_err();
    assert!(failure.why.contains("OPENAI_API_KEY may hold a key"), "{failure}");
}

#[test]
fn hooks_of_the_user_run_before_those_of_a_trusted_folder() {
    let hook = |command| format!("[[hooks]]\nevent = \"task_created\"\ncommand = \"{command}\"\n");
    let (folder, user) = (hook("folder"), hook("user"));
    let given = Given { folder: &folder, user: &user, ..Given::default() };
    let commands = |given: &Given<'_>| -> Vec<String> {
        given.settings().hooks.value.into_iter().map(|hook| hook.command).collect()
    };
    assert_eq!(commands(&given), ["user"]);
    assert_eq!(commands(&Given { is_trusted: true, ..given }), ["user", "folder"]);
}

#[test]
fn each_limit_and_each_price_has_a_source_of_its_own() {
    let file = "[budget.team]\ntokens = 1000\nmoney = 2.5\n\
         [prices.\"anthropic/m\"]\ninput = 3\noutput = 15.0\ncache_read = 0.3\n";
    let variables = [("TEAM_BUDGET_TEAM_TOKENS", "7"), ("TEAM_BUDGET_MEMBER_MONEY", "0.5")];
    let settings = load(&variables, file).unwrap();
    let Budgets { team, member } = settings.rules().budgets();
    assert_eq!(team, Budget { tokens: Some(7), money: money(2.5), ..Budget::default() });
    assert_eq!(member, Budget { money: money(0.5), ..Budget::default() });
    assert_eq!(settings.prices["anthropic/m"].value.cache_read, money(0.3));
    let row = |key| row(&settings, key);
    assert_eq!(row("budget.team.tokens").source, "environment (TEAM_BUDGET_TEAM_TOKENS)");
    assert_eq!(row("budget.member.turns").value, "(none)");
    assert_eq!(row("prices.anthropic/m").value, "3.00 in, 15.00 out");
}

/// A cloned folder may set a smaller budget than the user's, but not a larger one.
#[test]
fn a_folder_raises_no_limit_before_it_is_trusted() {
    let folder = "[budget.team]\ntokens = 9000\nturns = 5\n[budget.member]\nmoney = 8.0\n\
         [prices.\"m\"]\ninput = 0.1\noutput = 0.1\n[prices.\"n\"]\ninput = 1\noutput = 1\n";
    let user = "[budget.team]\ntokens = 1000\nturns = 50\n[budget.member]\nmoney = 0.5\n\
         [prices.\"m\"]\ninput = 3\noutput = 15\n";
    for (user, is_trusted, tokens, of_member, price) in
        [(user, false, 1000, 0.5, 3.0), (user, true, 9000, 8.0, 0.1), ("", false, 9000, 8.0, 0.1)]
    {
        let settings = Given { folder, user, is_trusted, ..Given::default() }.settings();
        let Budgets { team, member } = settings.rules().budgets();
        assert_eq!((team.tokens, team.turns), (Some(tokens), Some(5)));
        let prices = settings.prices.clone();
        assert_eq!(member.money, money(of_member));
        assert_eq!(
            (Some(prices["m"].value.input), Some(prices["n"].value.input)),
            (money(price), money(1.0))
        );
        let told = settings.ignored.unwrap_or_default();
        for raised in ["budget.team.tokens = 9000", "budget.member.money = 8.0", "prices.m = "] {
            assert_eq!(told.contains(raised), tokens == 1000, "{told}");
        }
        assert!(!told.contains("turns") && !told.contains("prices.n"), "{told}");
        assert_eq!(told.is_empty(), tokens != 1000, "{told}");
    }
}

const ENDPOINTS: &str = "[anthropic]\nbase_url = \"https://me:canary@gateway\"\n\
    version = \"2023-06-01\"\nheaders = { X-House = \"canary\", Anthropic-Beta = \"fast\" }\n\
    [openai]\nheaders = { X-Other = \"canary2\" }\n";

#[test]
fn the_environments_endpoints_and_headers_win_over_a_files() {
    let given = Given { user: ENDPOINTS, ..Given::default() };
    let (settings, environment) = given.load().unwrap();
    let credentials = ProviderCredentials::of(&settings, &environment);
    let access =
        |of: &ProviderCredentials, model: &str| of.access(&ModelChoice::parse(model).unwrap());
    let expected = Access {
        base_url: Some("https://me:canary@gateway".into()),
        base_url_source: Some(settings.anthropic_base_url.source.clone()),
        custom_headers: Some("anthropic-beta: fast\nx-house: canary".into()),
        api_version: Some("2023-06-01".into()),
        ..Access::default()
    };
    assert!(access(&credentials, "anthropic/m") == expected);
    let headers = access(&credentials, "openai/m").custom_headers;
    assert_eq!(headers.as_deref(), Some("x-other: canary2"));
    assert_eq!(credentials.secrets(), ["canary", "canary2"]);
    assert!(!format!("{:?}", settings.anthropic_headers).contains("canary"));
    assert!(settings.rows().iter().all(|row| !row.value.contains("canary")));
    for (key, shown) in [
        ("anthropic.base_url", "gateway"),
        ("anthropic.headers.anthropic-beta", "fast"),
        ("anthropic.headers.x-house", "[redacted]"),
        ("openai.base_url", "(its own)"),
    ] {
        assert_eq!(row(&settings, key).value, shown, "{key}");
    }

    let variables =
        [("ANTHROPIC_BASE_URL", "https://near"), ("ANTHROPIC_CUSTOM_HEADERS", "X-House: 2")];
    let (settings, environment) = Given { variables: &variables, ..given }.load().unwrap();
    let near = access(&ProviderCredentials::of(&settings, &environment), "anthropic/m");
    let lines = "anthropic-beta: fast\nx-house: canary\nX-House: 2";
    assert_eq!(near.custom_headers.as_deref(), Some(lines));
    assert_eq!(near.base_url.as_deref(), Some("https://near"));
    assert_eq!(row(&settings, "anthropic.base_url").source, "environment (ANTHROPIC_BASE_URL)");
}

/// `provider::model_selection` covers a folder's endpoint before and after trust.
#[test]
fn the_list_of_trusted_settings_has_the_headers_in_full_as_one_value() {
    let folder = tempfile::tempdir().unwrap();
    let risks = Settings::risks_in(&write(folder.path(), ENDPOINTS)).unwrap();
    assert_eq!(risks["anthropic.headers"]["x-house"], "canary");
    assert_eq!(risks.len(), 3, "{risks:?}");
    let ignored = load(&[], ENDPOINTS).unwrap().ignored.unwrap();
    let shown = ignored.replace("me:canary@", "");
    assert!(shown.contains("x-house") && !shown.contains("canary"), "{ignored}");
}

#[test]
fn a_header_is_set_by_the_nearest_file_that_names_it() {
    let user = "[openai]\nheaders = { A = \"user\", B = \"user\" }";
    let folder = "[openai]\nheaders = { b = \"folder\" }";
    let settings = Given { user, folder, is_trusted: true, ..Given::default() }.settings();
    let source = |name: &str| {
        let name = HeaderName::try_from(name.to_owned()).unwrap();
        settings.openai_headers[&name].source.clone()
    };
    assert!(source("a").contains(".config") && source("b").contains(".team"));
}

#[test]
fn a_budget_in_money_needs_the_price_of_a_model_that_is_paid() {
    let paid = ModelChoice::parse("anthropic/m").unwrap();
    let budgets =
        Budgets { member: Budget { money: money(1.0), ..Budget::default() }, ..Budgets::default() };
    let failure = check_price(&paid, None, &budgets).unwrap_err();
    assert!(failure.hint.contains("[models.\"anthropic/m\"]"), "{failure}");
    assert_eq!(check_price(&paid, None, &Budgets::default()), Ok(()));
    assert_eq!(check_price(&ModelChoice::fallback(), None, &budgets), Ok(()));
}

#[test]
fn heartbeats_come_often_enough_to_miss_a_few() {
    let interval = |seconds: &str| {
        load(&[("TEAM_HUNG_AFTER", seconds)], "").unwrap().rules().heartbeat_interval()
    };
    for (hung_after, millis) in [("0", 5000), ("1", 100), ("24", 2000), ("3600", 5000)] {
        assert_eq!(interval(hung_after), Duration::from_millis(millis), "{hung_after}");
    }
}

/// `provider::model_selection` and `provider::mixed_providers` cover the choice by one key and by a name.
#[test]
fn of_two_keys_that_of_the_first_provider_chooses_the_model() {
    let keys = [("OPENAI_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_MODEL", "m")];
    let (settings, environment) = Given { variables: &keys, ..Given::default() }.load().unwrap();
    let chosen = resolve(&settings, &environment).unwrap().unwrap();
    assert_eq!(chosen.value.to_string(), "anthropic/m");
}

fn sandbox_of(user: &str, folder: &str) -> (Sandbox, Option<String>) {
    let (settings, _) = Given { folder, user, ..Given::default() }.load().unwrap();
    (settings.sandbox(), settings.ignored)
}

#[test]
fn an_untrusted_folder_makes_the_sandbox_only_stricter() {
    use SandboxLevel::{Off, ReadOnly, Workspace};
    let with = |level: &str| format!("[sandbox]\nlevel = \"{level}\"\n");
    for (users, folders, level) in [
        ("", "", Workspace),
        ("", "off", Workspace),
        ("", "read-only", ReadOnly),
        ("off", "", Off),
        ("off", "workspace", Workspace),
        ("workspace", "off", Workspace),
        ("workspace", "read-only", ReadOnly),
        ("read-only", "workspace", ReadOnly),
    ] {
        let text = |level: &str| if level.is_empty() { String::new() } else { with(level) };
        let (sandbox, ignored) = sandbox_of(&text(users), &text(folders));
        assert_eq!(sandbox.level, level, "{users} {folders}");
        assert_eq!(ignored.is_some(), !folders.is_empty() && text(folders) != with(&word(level)));
    }
    let (sandbox, ignored) = sandbox_of("", "[sandbox]\nask_inside = false");
    assert!(
        sandbox.questions == SandboxQuestions::ByMode
            && ignored.unwrap().contains("sandbox.ask_inside")
    );
    let (sandbox, ignored) =
        sandbox_of("[sandbox]\nask_inside = false", "[sandbox]\nask_inside = true");
    assert!(sandbox.questions == SandboxQuestions::ByMode && ignored.is_none());
    let (sandbox, _) = sandbox_of("[sandbox]\nask_inside = false", "");
    let walls: Vec<_> = sandbox.walls_of_level().collect();
    let with = |walls: &[SandboxWall]| Sandbox { walls: walls.into(), ..sandbox.clone() };
    assert!(with(&walls).frees_commands());
    for missing in 0..walls.len() {
        let mut standing = walls.clone();
        standing.remove(missing);
        assert!(!with(&standing).frees_commands(), "without {:?}", walls[missing]);
    }
    let (sandbox, _) = sandbox_of("[sandbox]\nlevel = \"off\"\nask_inside = false", "");
    assert!(
        sandbox.questions == SandboxQuestions::Outside && !sandbox.frees_commands(),
        "without walls it frees nothing"
    );
    let (sandbox, ignored) =
        sandbox_of("[sandbox]\nnetwork = \"off\"", "[sandbox]\nnetwork = \"open\"");
    assert_eq!(sandbox.network, SandboxNetwork::Off);
    assert!(ignored.unwrap().contains("sandbox.network"));
    let hosts = "[sandbox]\nhosts = [\"packages.example.com\"]";
    let (sandbox, ignored) = sandbox_of(hosts, "");
    assert_eq!((sandbox.network, sandbox.hosts.len(), ignored), (SandboxNetwork::Hosts, 1, None));
    let (sandbox, ignored) = sandbox_of("", hosts);
    assert_eq!((sandbox.network, sandbox.hosts.len()), (SandboxNetwork::Open, 0));
    assert!(ignored.unwrap().contains("sandbox.hosts"));
}

fn word(level: SandboxLevel) -> String {
    serde_json::to_value(level).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn a_folder_hides_more_and_shows_or_opens_nothing() {
    let (sandbox, ignored) = sandbox_of("", "[sandbox]\nhide = [\"/srv/keys\"]");
    assert_eq!((sandbox.hide.len(), ignored), (hidden_by_default() + 1, None));
    let (sandbox, ignored) = sandbox_of("", "[sandbox]\nhide = [\"!~/.ssh\"]\nwrite = [\"~/x\"]");
    assert_eq!((sandbox.hide.len(), sandbox.write.len()), (hidden_by_default(), 0));
    assert!(ignored.unwrap().contains("~/.ssh"));
    let (sandbox, _) = sandbox_of("[sandbox]\nhide = [\"!~/.npmrc\"]\nwrite = [\"~/x\"]", "");
    assert!(!sandbox.hide.contains(&"~/.npmrc".into()));
    assert_eq!(
        (sandbox.hide.len(), sandbox.write),
        (hidden_by_default() - 1, vec!["~/x".to_owned()])
    );
}

fn hidden_by_default() -> usize {
    sandbox_of("", "").0.hide.len()
}

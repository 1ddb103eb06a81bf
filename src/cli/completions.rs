//! What a shell and `man` want to know of the commands: completions, with the names of the team, and
//! manual pages. Made from the definition of the command line, so that they cannot go stale.

use super::args::{Arguments, CompletionsArgs, ManArgs};
use super::context::Context;
use super::out;
use crate::error::{Exit, Failure};
use crate::store::{liveness, roster};
use crate::wire::AgentName;
use clap::CommandFactory;
use clap_complete::Shell;

/// Commands whose arguments are names.
const NAMED: &str = "attach inbox log send stop transcript";

/// The script that a shell reads.
pub(super) fn completions(args: &CompletionsArgs) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "team", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    match args.shell {
        Shell::Bash => script.push_str(&bash()),
        Shell::Fish => script.push_str(&fish()),
        Shell::Zsh => script = zsh(&script),
        // The others complete what is written in the definition.
        Shell::Elvish | Shell::PowerShell | _ => {}
    }
    if out::say(&script) { Exit::Ok } else { Exit::Failure }
}

/// Behind what was generated, whose answer is kept.
fn bash() -> String {
    let verbs = NAMED.replace(' ', "|");
    format!(
        "
_team_with_names() {{
    _team \"$@\"
    local word verb=
    for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do
        case $word in {verbs}) verb=$word ;; esac
    done
    if [[ -n $verb && ${{COMP_WORDS[COMP_CWORD]}} != -* ]]; then
        COMPREPLY+=($(compgen -W \"$(team __names 2>/dev/null)\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))
    fi
}}
complete -F _team_with_names -o bashdefault -o default team
"
    )
}

fn fish() -> String {
    format!(
        "complete -c team -n \"__fish_seen_subcommand_from {NAMED}\" -f -a \"(team __names 2>/dev/null)\"\n"
    )
}

/// An argument that is called `name`, `names` or `to` completes names instead of files.
fn zsh(script: &str) -> String {
    let with_names = |line: &str| {
        let is_name = ["':name ", "'*::names ", "'::to "].iter().any(|it| line.starts_with(it));
        if is_name { line.replace(":_default'", ":_team_names'") } else { line.to_owned() }
    };
    let mut lines: Vec<String> = script.lines().map(with_names).collect();
    let names = "\n_team_names() {\n    local -a names\n    \
                 names=(${(f)\"$(team __names 2>/dev/null)\"})\n    compadd -a names\n}\n";
    // Behind `#compdef`, before anything is run.
    lines.insert(lines.len().min(1), names.into());
    lines.join("\n") + "\n"
}

/// Who can be named: the lead, the person, the living members; nothing where there is no team.
pub(super) fn names(context: &Context) -> Exit {
    let mut names = vec!["lead".to_owned(), "user".to_owned()];
    if let Ok(team) = context.seen_team()
        && let Ok(roster) = roster::read(&team)
    {
        let members = roster.members.iter().filter_map(|it| AgentName::member(&it.name).ok());
        let living =
            members.filter(|name| liveness::probe(&team, name).is_ok_and(|it| it.is_alive()));
        names.extend(living.map(|name| name.to_string()));
    }
    if out::say(&names.join("\n")) { Exit::Ok } else { Exit::Failure }
}

/// The page of `team`, or all pages into a folder.
pub(super) fn man(context: &Context, args: &ManArgs) -> Result<Exit, Failure> {
    let failure = |why: std::io::Error| {
        let hint = "give a folder that can be written";
        Failure::new(Exit::Failure, "the pages cannot be written", why.to_string(), hint)
    };
    let Some(folder) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Arguments::command()).render(&mut page).map_err(failure)?;
        let printed = out::say(&String::from_utf8_lossy(&page));
        return Ok(if printed { Exit::Ok } else { Exit::Failure });
    };
    let folder = context.cwd.join(folder);
    std::fs::create_dir_all(&folder).map_err(failure)?;
    clap_mangen::generate_to(Arguments::command(), &folder).map_err(failure)?;
    let printed = out::say(&format!("the pages are in {}", folder.display()));
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

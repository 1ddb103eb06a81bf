//! `team completions SHELL`: a script made from the definition of the command line, with the team's names.

use crate::app::context::Context;
use crate::app::output::{exit_after, print};
use crate::error::{Exit, Failure};
use clap_complete::Shell;

/// Ids of arguments that name an agent of the team.
const NAME_IDS: [&str; 3] = ["name", "names", "to"];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(_: &Context, args: Args, mut definition: clap::Command) -> Result<Exit, Failure> {
    let verbs = verbs_with_names(&definition);
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition, "team", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    match args.shell {
        Shell::Bash => script.push_str(&bash(&verbs)),
        Shell::Fish => script.push_str(&fish(&verbs)),
        Shell::Zsh => script = zsh(&script),
        // The generated scripts of other shells complete the definition only.
        Shell::Elvish | Shell::PowerShell | _ => {}
    }
    Ok(exit_after(print(&script)))
}

fn verbs_with_names(definition: &clap::Command) -> Vec<String> {
    let is_name = |argument: &clap::Arg| NAME_IDS.contains(&argument.get_id().as_str());
    let verbs = definition.get_subcommands().filter(|verb| verb.get_positionals().any(is_name));
    let mut verbs: Vec<String> = verbs.map(|verb| verb.get_name().to_owned()).collect();
    verbs.sort();
    verbs
}

/// Extends the generated function.
fn bash(verbs: &[String]) -> String {
    let verbs = verbs.join("|");
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

fn fish(verbs: &[String]) -> String {
    let verbs = verbs.join(" ");
    format!(
        "complete -c team -n \"__fish_seen_subcommand_from {verbs}\" -f -a \"(team __names 2>/dev/null)\"\n"
    )
}

/// Makes the arguments for names complete names instead of files.
fn zsh(script: &str) -> String {
    let with_names = |line: &str| {
        let is_name = ["':name ", "'*::names ", "'::to "].iter().any(|it| line.starts_with(it));
        if is_name { line.replace(":_default'", ":_team_names'") } else { line.to_owned() }
    };
    let mut lines: Vec<String> = script.lines().map(with_names).collect();
    let names = "\n_team_names() {\n    local -a names\n    \
                 names=(${(f)\"$(team __names 2>/dev/null)\"})\n    compadd -a names\n}\n";
    // After `#compdef`, before the first command.
    lines.insert(lines.len().min(1), names.into());
    lines.join("\n") + "\n"
}

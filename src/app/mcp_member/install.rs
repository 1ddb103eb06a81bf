//! `team mcp install`: the entry by which another program starts `team mcp`, and the hooks by which Claude Code gets mail.
//!
//! *Invariant:* a file of another program is replaced whole, keeps all that was in it, and is left alone if it is not
//! understood or has another entry of this name.

use super::install_hooks::{hooks, with_hooks};
use crate::app::context::Context;
use crate::app::names::member_name;
use crate::app::output::{print, warn};
use crate::error::{Exit, Failure, OrFail};
use crate::os::event_loop::check_blocking;
use crate::wire::shell_word::quoted;
use serde_json::{Map, Value, json};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The name of the entry.
const NAME: &str = "team";

/// A program that can be a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ClientProgram {
    /// Claude Code: .mcp.json and .claude/settings.local.json of this folder
    Claude,
    /// Codex: config.toml in `CODEX_HOME`, else ~/.codex
    Codex,
    /// Gemini CLI: .gemini/settings.json of this folder
    Gemini,
    /// Cursor: .cursor/mcp.json of this folder
    Cursor,
    /// `OpenCode`: opencode.json of this folder
    Opencode,
    /// Copilot CLI: .mcp.json of this folder
    Copilot,
}

/// The file with a program's list of servers, and the entry for it.
#[derive(Debug, PartialEq)]
enum Entry {
    /// The server is `list.team` in JSON.
    Json { file: PathBuf, list: &'static str, server: Value },
    /// The server is the table `mcp_servers.team`.
    Toml { file: PathBuf, table: String },
    /// The hooks of Claude Code, each of which runs this command.
    Hooks { file: PathBuf, command: String },
}

/// Prints the entries for a program, or writes them into the program's settings.
pub(crate) fn run(
    context: &Context,
    program: ClientProgram,
    name: Option<&str>,
    leads: bool,
    is_written: bool,
) -> Result<Exit, Failure> {
    let mut words = vec![own_command(context)?, "mcp".into()];
    if leads {
        words.push("--lead".into());
    }
    if let Some(name) = name {
        words.extend(["--as".into(), member_name(name)?.to_string()]);
    }
    if !context.is_found_here() {
        words.extend(["--dir".into(), context.team_path.display().to_string()]);
    }
    if is_written {
        context.refuse_inside_agent("mcp install")?;
    }
    let mut entries = vec![entry_for(program, &words, context)?];
    if program == ClientProgram::Claude {
        let file = context.cwd.join(".claude/settings.local.json");
        entries.push(Entry::Hooks { file, command: hook_command(context)? });
    }
    for entry in entries {
        let file = entry.file().display().to_string();
        let said = if !is_written {
            warn(&format!("the entry for {file}; --write writes it there:"));
            entry.text()
        } else if entry.write()? {
            format!("wrote {file}")
        } else {
            format!("{file} has the entry already")
        };
        if !print(&said) {
            return Ok(Exit::Failure);
        }
    }
    Ok(Exit::Ok)
}

/// Returns the command of a hook. It takes the place of its shell, so that it is a child of Claude Code.
fn hook_command(context: &Context) -> Result<String, Failure> {
    let mut own = own_command(context)?;
    if own != NAME {
        own = quoted(&own);
    }
    let place = if context.is_found_here() {
        // Claude Code may have changed its folder.
        r#"-C "$CLAUDE_PROJECT_DIR""#.to_owned()
    } else {
        format!("--dir {}", quoted(&context.team_path.display().to_string()))
    };
    Ok(format!("exec {own} {place} mcp mail-hook"))
}

/// Returns the command that starts this program: its name if the search path leads to it, else its path.
fn own_command(context: &Context) -> Result<String, Failure> {
    let hint = "start it by its path";
    let own = std::env::current_exe().and_then(fs::canonicalize);
    let own = own.or_fail("the path of this program is not known", hint)?;
    let path = context.environment.get("PATH").unwrap_or_default();
    let found = path.split(':').map(|folder| Path::new(folder).join(NAME)).find(|it| it.is_file());
    let is_own = found.and_then(|it| fs::canonicalize(it).ok()).is_some_and(|it| it == own);
    Ok(if is_own { NAME.into() } else { own.display().to_string() })
}

fn entry_for(
    program: ClientProgram,
    words: &[String],
    context: &Context,
) -> Result<Entry, Failure> {
    let (command, rest) = (words.first(), words.get(1..).unwrap_or_default());
    let server = json!({ "command": command, "args": rest });
    let here = |name: &str| context.cwd.join(name);
    let servers = |file| Entry::Json { file, list: "mcpServers", server: server.clone() };
    Ok(match program {
        ClientProgram::Claude | ClientProgram::Copilot => servers(here(".mcp.json")),
        ClientProgram::Gemini => servers(here(".gemini/settings.json")),
        ClientProgram::Cursor => servers(here(".cursor/mcp.json")),
        ClientProgram::Opencode => {
            let server = json!({ "type": "local", "command": words, "enabled": true });
            Entry::Json { file: here("opencode.json"), list: "mcp", server }
        }
        ClientProgram::Codex => {
            let get = |name: &str| context.environment.get(name).map(PathBuf::from);
            let home = get("CODEX_HOME").or_else(|| Some(get("HOME")?.join(".codex")));
            let home = home.ok_or_else(|| {
                let why = "neither HOME nor CODEX_HOME is set";
                let what = "the settings of Codex are not known";
                Failure::new(Exit::Failure, what, why, "set one of them")
            })?;
            // JSON strings and lists of strings are also TOML.
            let (command, args) = (json!(command), json!(rest));
            let table = format!("[mcp_servers.{NAME}]\ncommand = {command}\nargs = {args}\n");
            Entry::Toml { file: home.join("config.toml"), table }
        }
    })
}

impl Entry {
    fn file(&self) -> &Path {
        let (Self::Json { file, .. } | Self::Toml { file, .. } | Self::Hooks { file, .. }) = self;
        file
    }

    /// Returns the entry as a file that has nothing else.
    fn text(&self) -> String {
        match self {
            Self::Json { list, server, .. } => pretty(&json!({ *list: { NAME: server } })),
            Self::Toml { table, .. } => table.clone(),
            Self::Hooks { command, .. } => pretty(&hooks(command)),
        }
    }

    /// Writes the entry into the file. Returns `false` if it is there already. Fails if the file is not understood, or has
    /// another entry of this name.
    fn write(&self) -> Result<bool, Failure> {
        let file = self.file();
        let before = match fs::read_to_string(file) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
            read => {
                read.map_err(|why| unchanged(file, why, "check the file and its permissions"))?
            }
        };
        let after = match self {
            Self::Json { list, server, .. } => with_server(&before, list, server),
            Self::Toml { table, .. } => with_table(&before, table),
            Self::Hooks { command, .. } => {
                let after = object(&before).and_then(|whole| with_hooks(whole, command));
                after.map(|whole| whole.map(|whole| pretty(&whole)))
            }
        };
        let by_hand = "add the entry by hand: the same command without --write prints it";
        let Some(after) = after.map_err(|why| unchanged(file, why, by_hand))? else {
            return Ok(false);
        };
        replace(file, &after)
            .map_err(|why| unchanged(file, why, "check the folder and its permissions"))?;
        Ok(true)
    }
}

fn unchanged(file: &Path, why: impl std::fmt::Display, hint: &str) -> Failure {
    let what = format!("{} was not changed", file.display());
    Failure::new(Exit::Failure, what, why.to_string(), hint)
}

const DIFFERS: &str = "it has another entry of the name team";

/// Returns the object in the text of a file. Fails if the text is something else.
fn object(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(text).map_err(|why| format!("it is not a JSON object: {why}"))
}

/// Returns the JSON of a file with the server in its list; `None` if it is there. Fails if the text is no JSON object.
fn with_server(before: &str, list: &str, server: &Value) -> Result<Option<String>, String> {
    let mut whole = object(before)?;
    let servers = whole.entry(list).or_insert_with(|| json!({}));
    let servers = servers.as_object_mut().ok_or_else(|| format!("{list} is not an object"))?;
    match servers.get(NAME) {
        Some(there) if there == server => return Ok(None),
        Some(_) => return Err(DIFFERS.into()),
        None => {}
    }
    servers.insert(NAME.into(), server.clone());
    Ok(Some(pretty(&Value::Object(whole))))
}

/// Returns the TOML of a file with the table at its end; `None` if it is there. Fails if the text is no TOML.
fn with_table(before: &str, table: &str) -> Result<Option<String>, String> {
    let read = |text: &str| toml::from_str::<toml::Table>(text);
    let server = |whole: &toml::Table| Some(whole.get("mcp_servers")?.get(NAME)?.clone());
    let whole = read(before).map_err(|why| format!("it is not TOML: {}", why.message()))?;
    match server(&whole) {
        Some(there) if Some(&there) == read(table).ok().as_ref().and_then(server).as_ref() => {
            return Ok(None);
        }
        Some(_) => return Err(DIFFERS.into()),
        None => {}
    }
    let gap = match before {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let after = format!("{before}{gap}{table}");
    // A list of servers that is not a table cannot be continued.
    read(&after).map_err(|why| format!("it cannot have the entry: {}", why.message()))?;
    Ok(Some(after))
}

fn pretty(value: &Value) -> String {
    // Keys are text, so that the value can be serialized.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Replaces a file, or the file that a link leads to. Its permissions stay.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    check_blocking("fsync");
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let mode = fs::metadata(&file).map_or(0o644, |known| known.permissions().mode() & 0o777);
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.draft", std::process::id()));
    let draft = file.with_file_name(name);
    let write = || {
        let mut out = OpenOptions::new().create_new(true).write(true).mode(mode).open(&draft)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&draft, &file)
    };
    write().inspect_err(|_| fs::remove_file(&draft).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_added_once_and_what_is_there_stays() {
        let server = json!({ "command": "team", "args": ["mcp"] });
        let add = |before: &str| with_server(before, "mcpServers", &server);
        let new = add("").unwrap().unwrap();
        assert_eq!(add(&new), Ok(None));
        let before = r#"{"z": 1, "mcpServers": {"git": {"command": "g"}}, "a": [2]}"#;
        let after = add(before).unwrap().unwrap();
        let keys: Value = serde_json::from_str(&after).unwrap();
        assert_eq!(keys.as_object().unwrap().keys().collect::<Vec<_>>(), ["z", "mcpServers", "a"]);
        assert_eq!(keys["mcpServers"], json!({ "git": { "command": "g" }, "team": server }));
        assert_eq!(add(&after), Ok(None));
        for bad in ["[]", "// comment\n{}", r#"{"mcpServers": 1}"#] {
            assert!(add(bad).is_err(), "{bad}");
        }
        assert_eq!(add(r#"{"mcpServers": {"team": {}}}"#), Err(DIFFERS.into()));
    }

    #[test]
    fn a_table_is_added_once_and_what_is_there_stays() {
        let table = "[mcp_servers.team]\ncommand = \"team\"\nargs = [\"mcp\"]\n";
        let add = |before: &str| with_table(before, table);
        assert_eq!(add(""), Ok(Some(table.into())));
        let before = "# mine\nmodel = \"m\"\n[mcp_servers.git]\ncommand = \"g\"";
        let after = add(before).unwrap().unwrap();
        assert_eq!(after, format!("{before}\n\n{table}"));
        assert_eq!(add(&after), Ok(None));
        assert!(add("model = ").is_err());
        assert!(add("mcp_servers = { git = { command = \"g\" } }\n").is_err());
        assert_eq!(add("[mcp_servers.team]\ncommand = \"x\"\n"), Err(DIFFERS.into()));
    }
}

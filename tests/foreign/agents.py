"""The agents of other vendors that are tried: their packages, and the settings that point them at the fakes."""

import json
import subprocess
import sys
from pathlib import Path

# The versions are pinned here and nowhere else.
NODE = "node@22.23.3"
PACKAGES = {
    "claude": "@agentclientprotocol/claude-agent-acp@0.100.0",
    "codex": "@agentclientprotocol/codex-acp@2.6.0",
    "opencode": "opencode-ai@1.18.33",
    "qwen": "@qwen-code/qwen-code@0.24.4",
    "gemini": "@google/gemini-cli@0.61.0",
    "copilot": "@github/copilot@1.0.102",
}
# The programs that an agent's start consists of.
PROGRAMS = {
    "claude": ["claude-agent-acp"],
    "codex": ["codex-acp"],
    "opencode": ["opencode", "acp"],
    "qwen": ["qwen", "--acp"],
    "gemini": ["gemini", "--acp"],
    "copilot": ["copilot", "--acp"],
}
# The agents whose endpoint would refuse what the fake refuses, and the files that an answer "always" must not make.
OWN_RULES = [".codex/rules", ".qwen/settings.json", ".claude/settings.local.json", "work/.qwen", "work/.claude",
             "work/.gemini", "work/.opencode", "work/.codex"]


def install(folder, names):
    """Installs the packages into a folder, unless it has these versions. Returns the names that can be used."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {NODE.rsplit("@", 1)[0]: NODE.rsplit("@", 1)[1]}
    for name in PACKAGES:
        package, version = PACKAGES[name].rsplit("@", 1)
        if name in names or (folder / "node_modules" / package).exists():
            wanted[package] = version

    def has(package):
        try:
            told = json.loads((folder / "node_modules" / package / "package.json").read_text())
        except OSError:
            return False
        return told["version"] == wanted[package]

    if not all(has(package) for package in wanted):
        manifest = {"private": True, "dependencies": wanted}
        (folder / "package.json").write_text(json.dumps(manifest, indent=1))
        print("installing", ", ".join(f"{name}@{version}" for name, version in wanted.items()), file=sys.stderr)
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=folder, stdout=sys.stderr, check=False)
        if done.returncode:
            print("npm cannot install them", file=sys.stderr)
    programs = folder / "node_modules/.bin"
    return [name for name in names if has(PACKAGES[name].rsplit("@", 1)[0]) and (programs / PROGRAMS[name][0]).exists()]


def settings(name, url):
    """Returns command and environment of an agent whose model is the fake at this address."""
    command, env, url = list(PROGRAMS[name]), {}, f"{url}/{name}"
    if name == "claude":
        env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "dummy"}
    elif name == "codex":
        env = {"FAKE_KEY": "dummy"}
    elif name == "opencode":
        options = {"baseURL": f"{url}/v1", "apiKey": "dummy"}
        provider = {"npm": "@ai-sdk/anthropic", "options": options, "models": {"m": {"name": "m"}}}
        config = {"model": "fake/m", "small_model": "fake/m", "provider": {"fake": provider}}
        env = {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1",
               "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    elif name == "qwen":
        command += ["--auth-type", "openai", "--openai-base-url", f"{url}/v1", "--openai-api-key", "dummy",
                    "--model", "m"]
    elif name == "gemini":
        env = {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url}
    elif name == "copilot":
        env = {"COPILOT_PROVIDER_BASE_URL": url, "COPILOT_PROVIDER_TYPE": "anthropic",
               "COPILOT_PROVIDER_API_KEY": "dummy", "COPILOT_MODEL": "m", "COPILOT_OFFLINE": "true"}
    return command, env


def write_home(home, name, url):
    """Writes an agent's own files into a home folder."""
    if name == "codex":
        (home / ".codex").mkdir(exist_ok=True)
        (home / ".codex/config.toml").write_text(
            'model = "m"\nmodel_provider = "fake"\n[model_providers.fake]\nname = "fake"\n'
            f'base_url = "{url}/codex/v1"\nenv_key = "FAKE_KEY"\nwire_api = "responses"\n')
    elif name == "gemini":
        (home / ".gemini").mkdir(exist_ok=True)
        chosen = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        (home / ".gemini/settings.json").write_text(json.dumps(chosen))


def toml(value):
    """Returns a value as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


def write_settings(home, names, url, more="", recorder=None):
    """Writes the settings of the team, with these agents."""
    lines = []
    for name in names:
        command, env = settings(name, url)
        if recorder:
            command = [sys.executable, str(Path(__file__).with_name("record.py")), str(recorder), *command]
        lines += [f"[agents.{name}]", f"env = {toml(env)}"]
        if command != PROGRAMS[name]:
            lines.append(f"command = {toml(command)}")
        write_home(home, name, url)
    folder = home / ".config/team"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.toml").write_text("\n".join([more, *lines, ""]))

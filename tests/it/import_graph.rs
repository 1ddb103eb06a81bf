//! The imports between the files of a crate, read from the sources. The parser covers only the part of Rust's
//! syntax that the house rule about import loops needs.
//!
//! A `mod x;` is no import, and neither is a `pub use` of an item from the module's own submodules: an import of
//! a re-exported item counts for the file that defines it. Code under `#[cfg(test)]` is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The names of a path, such as `crate`, `store`, `roster`.
type Names = Vec<String>;

/// The imported files of each file.
pub(crate) type Imports = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// The imports between the files of the crate whose root file is `root`.
pub(crate) fn imports(root: &Path) -> Imports {
    let mut modules = BTreeMap::new();
    load(root, root.parent().unwrap(), &[], &mut modules);
    let mut imports = Imports::new();
    for (place, module) in &modules {
        let found = imports.entry(module.file.clone()).or_default();
        for binding in &module.bindings {
            let is_reexport = binding.is_public && binding.is_below(place);
            if !is_reexport {
                found.extend(file_of(&modules, &binding.target, 0));
            }
        }
        for path in &module.paths {
            found.extend(absolute(&modules, place, path).and_then(|p| file_of(&modules, &p, 0)));
        }
        found.remove(&module.file);
    }
    imports
}

/// The groups of files that import each other, directly or through other files. Each group is sorted.
pub(crate) fn loops(imports: &Imports) -> Vec<Vec<PathBuf>> {
    let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> =
        imports.keys().map(|file| (file, reach(imports, file))).collect();
    let mut groups = BTreeSet::new();
    for (file, from_file) in &reached {
        let back = |other: &&&PathBuf| reached.get(**other).is_some_and(|from| from.contains(file));
        let group: Vec<PathBuf> = from_file.iter().filter(back).map(|f| (*f).clone()).collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

fn reach<'a>(imports: &'a Imports, from: &'a PathBuf) -> BTreeSet<&'a PathBuf> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in imports.get(file).into_iter().flatten() {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached
}

/// The contents of a module, as far as imports need them.
#[derive(Debug)]
struct Module {
    file: PathBuf,
    children: BTreeSet<String>,
    /// The names of the items that it defines.
    items: BTreeSet<String>,
    bindings: Vec<Binding>,
    /// The paths in its code that have two or more names.
    paths: BTreeSet<Names>,
}

/// A name that a `use` brings into a module, or `*` for all names.
#[derive(Debug)]
struct Binding {
    name: String,
    /// The path from the crate's root.
    target: Names,
    is_public: bool,
}

impl Binding {
    fn is_below(&self, place: &[String]) -> bool {
        self.target.len() > place.len() && self.target.starts_with(place)
    }
}

type Modules = BTreeMap<Names, Module>;

/// Reads a file and the files of its modules, which are in `folder`.
fn load(file: &Path, folder: &Path, place: &[String], modules: &mut Modules) {
    let tokens = without_tests(&tokens(&fs::read_to_string(file).unwrap()));
    for (inner, tokens) in split_inline(&tokens, place) {
        let folder = inner.iter().skip(place.len()).fold(folder.to_path_buf(), |f, n| f.join(n));
        let module = read_module(file, &tokens, &inner);
        for child in module.children.clone() {
            let leaf = folder.join(format!("{child}.rs"));
            let leaf = if leaf.exists() { leaf } else { folder.join(&child).join("mod.rs") };
            let mut below = inner.clone();
            below.push(child.clone());
            if leaf.exists() {
                load(&leaf, &folder.join(&child), &below, modules);
            }
        }
        modules.insert(inner, module);
    }
}

fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
}

/// Splits a text into words, `::`, and single characters. Comments, strings and lifetimes are left out.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let starts = |at: usize, what: &str| {
        what.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c))
    };
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = chars.get(at).copied() {
        if starts(at, "//") {
            while chars.get(at).is_some_and(|c| *c != '\n') {
                at += 1;
            }
        } else if starts(at, "/*") {
            while at < chars.len() && !starts(at, "*/") {
                at += 1;
            }
            at += 2;
        } else if c == '"' {
            at = end_of_string(&chars, at + 1);
        } else if c == 'r' && (starts(at, "r\"") || starts(at, "r#\"") || starts(at, "r##\"")) {
            let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
            let end = format!("\"{}", "#".repeat(hashes));
            at += hashes + 2;
            while at < chars.len() && !starts(at, &end) {
                at += 1;
            }
            at += end.len();
        } else if c == '\'' {
            // A character, or a lifetime.
            let is_character = chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'');
            at += 1;
            if is_character {
                at += if chars[at] == '\\' { 2 } else { 1 };
                while chars.get(at).is_some_and(|c| *c != '\'') {
                    at += 1;
                }
                at += 1;
            } else {
                while chars.get(at).is_some_and(|c| c.is_alphanumeric() || *c == '_') {
                    at += 1;
                }
            }
        } else if c.is_alphanumeric() || c == '_' {
            let word: String =
                chars[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
            at += word.chars().count();
            // A string with a prefix, such as `b"…"` or `br"…"`.
            if matches!(word.as_str(), "b" | "c") && chars.get(at) == Some(&'"') {
                continue;
            }
            if matches!(word.as_str(), "br" | "cr") && matches!(chars.get(at), Some('"' | '#')) {
                at -= 1;
                continue;
            }
            found.push(word);
        } else if starts(at, "::") {
            found.push("::".into());
            at += 2;
        } else {
            if !c.is_whitespace() {
                found.push(c.into());
            }
            at += 1;
        }
    }
    found
}

fn end_of_string(chars: &[char], mut at: usize) -> usize {
    while let Some(c) = chars.get(at) {
        match c {
            '"' => return at + 1,
            '\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

/// The index of the bracket that closes the one at `open`.
fn closing(tokens: &[String], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The index after the item, field or statement that begins at `at`.
fn end_of_item(tokens: &[String], mut at: usize) -> usize {
    let mut is_item = false;
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            ";" => return at + 1,
            "," if !is_item => return at + 1,
            "{" => return closing(tokens, at) + 1,
            "}" => return at,
            "(" | "[" => at = closing(tokens, at),
            "fn" | "mod" | "use" | "impl" | "struct" | "enum" | "trait" | "const" | "static" => {
                is_item = true;
            }
            _ => {}
        }
        at += 1;
    }
    at
}

fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is_test = tokens[at..]
            .iter()
            .take(7)
            .map(String::as_str)
            .eq(["#", "[", "cfg", "(", "test", ")", "]"]);
        if is_test {
            at = end_of_item(tokens, at + 7);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// The tokens of a file, by module: those of its inline modules, and the rest.
fn split_inline(tokens: &[String], place: &[String]) -> Vec<(Names, Vec<String>)> {
    let (mut own, mut found) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let is_inline = tokens[at] == "mod" && tokens.get(at + 2).is_some_and(|t| t == "{");
        if is_inline {
            let end = closing(tokens, at + 2);
            let mut inner = place.to_vec();
            inner.push(tokens[at + 1].clone());
            found.extend(split_inline(&tokens[at + 3..end.min(tokens.len())], &inner));
            at = end + 1;
        } else {
            own.push(tokens[at].clone());
            at += 1;
        }
    }
    found.push((place.to_vec(), own));
    found
}

fn read_module(file: &Path, tokens: &[String], place: &[String]) -> Module {
    let mut module = Module {
        file: file.to_path_buf(),
        children: BTreeSet::new(),
        items: BTreeSet::new(),
        bindings: Vec::new(),
        paths: BTreeSet::new(),
    };
    let mut uses = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let next = tokens.get(at + 1).map_or("", String::as_str);
        match token.as_str() {
            "mod" if tokens.get(at + 2).is_some_and(|t| t == ";") => {
                module.children.insert(next.into());
                at += 3;
            }
            "use" if next != "<" => {
                let end = (at..tokens.len()).find(|i| tokens[*i] == ";").unwrap_or(tokens.len());
                let before = at.checked_sub(1).map(|i| tokens[i].as_str());
                let is_public = matches!(before, Some("pub" | ")"));
                let mut tree = Vec::new();
                use_tree(&tokens[at + 1..end], &[], &mut tree);
                uses.extend(tree.into_iter().map(|(name, path)| (name, path, is_public)));
                at = end + 1;
            }
            // A visibility names a module without importing it.
            "in" if tokens[..at].ends_with(&["pub".to_owned(), "(".to_owned()]) => {
                at = path_at(tokens, at + 1).1;
            }
            "struct" | "enum" | "union" | "fn" | "trait" | "type" | "const" | "static" => {
                module.items.insert(next.into());
                at += 1;
            }
            _ if is_word(token) => {
                let (path, end) = path_at(tokens, at);
                if path.len() > 1 {
                    module.paths.insert(path);
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    for (name, path, is_public) in uses {
        let is_child = module.children.contains(&path[0]);
        if let Some(target) = from_root(place, &path, is_child) {
            module.bindings.push(Binding { name, target, is_public });
        }
    }
    module
}

/// The path that begins at `at`, and the index after it.
fn path_at(tokens: &[String], at: usize) -> (Names, usize) {
    let mut path = vec![tokens[at].clone()];
    let mut end = at + 1;
    while tokens.get(end).is_some_and(|t| t == "::")
        && let Some(name) = tokens.get(end + 1).filter(|t| is_word(t))
    {
        path.push(name.clone());
        end += 2;
    }
    (path, end)
}

/// Collects the names that a use tree binds, each with its path.
fn use_tree(tokens: &[String], prefix: &[String], found: &mut Vec<(String, Names)>) {
    let mut path = prefix.to_vec();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "{" => {
                let inner = &tokens[at + 1..closing(tokens, at)];
                let (mut start, mut depth) = (0, 0);
                for (i, token) in inner.iter().enumerate() {
                    match token.as_str() {
                        "{" => depth += 1,
                        "}" => depth -= 1,
                        "," if depth == 0 => {
                            use_tree(&inner[start..i], &path, found);
                            start = i + 1;
                        }
                        _ => {}
                    }
                }
                use_tree(&inner[start..], &path, found);
                return;
            }
            "*" => return found.push(("*".into(), path)),
            "as" => {
                let name = tokens.get(at + 1).cloned().unwrap_or_default();
                return found.push((name, path));
            }
            "self" if !path.is_empty() && path.len() == prefix.len() => {}
            word if is_word(word) => path.push(word.into()),
            _ => {}
        }
        at += 1;
    }
    if let Some(name) = path.last().cloned() {
        found.push((name, path));
    }
}

/// Resolves a path of a `use` to one from the crate's root. `None` if it leads into another crate.
fn from_root(place: &[String], path: &[String], is_child: bool) -> Option<Names> {
    let mut base = place.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while let Some(("super", after)) = rest.split_first().map(|(s, a)| (s.as_str(), a)) {
                base.pop();
                rest = after;
            }
        }
        _ if is_child => {}
        _ => return None,
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// Resolves a path in the code of a module, which may also begin with a name that the module imports.
fn absolute(modules: &Modules, place: &[String], path: &[String]) -> Option<Names> {
    let module = modules.get(place)?;
    let first = path.first()?;
    if let Some(binding) = module.bindings.iter().find(|b| b.name == *first) {
        let mut target = binding.target.clone();
        target.extend(path[1..].iter().cloned());
        return Some(target);
    }
    from_root(place, path, module.children.contains(first))
}

/// The file that defines the item at a path from the root.
fn file_of(modules: &Modules, path: &[String], depth: usize) -> Option<PathBuf> {
    // Two modules may re-export each other's names without end.
    if depth > 16 {
        return None;
    }
    let mut place = Vec::new();
    let mut module = modules.get(&place)?;
    for (at, name) in path.iter().enumerate() {
        place.push(name.clone());
        if let Some(below) = modules.get(&place) {
            module = below;
            continue;
        }
        if module.children.contains(name) {
            // The file of this module is elsewhere (`#[path]`), in the folder of another crate.
            return None;
        }
        let rest = &path[at + 1..];
        if module.items.contains(name) {
            return Some(module.file.clone());
        }
        let bound = module.bindings.iter().find(|b| b.name == *name).map(|b| b.target.clone());
        if let Some(mut target) = bound {
            target.extend(rest.iter().cloned());
            return file_of(modules, &target, depth + 1);
        }
        for glob in module.bindings.iter().filter(|b| b.name == "*") {
            let defines = modules.get(&glob.target).is_some_and(|m| m.items.contains(name));
            if defines {
                return modules.get(&glob.target).map(|module| module.file.clone());
            }
        }
        break;
    }
    Some(module.file.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn crate_of(files: &[(&str, &str)]) -> (tempfile::TempDir, Imports) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
        }
        let imports = imports(&folder.path().join("lib.rs"));
        (folder, imports)
    }

    fn imported(files: &[(&str, &str)], file: &str) -> Vec<String> {
        let (folder, imports) = crate_of(files);
        let found = imports[&folder.path().join(file)].iter();
        found.map(|f| f.strip_prefix(folder.path()).unwrap().display().to_string()).collect()
    }

    #[test]
    fn an_import_counts_for_the_file_that_defines_the_item() {
        let files = [
            ("lib.rs", "mod a; mod room; fn main() { a::f() }"),
            (
                "room/mod.rs",
                "mod x; mod y;\npub use x::{X, Other as Renamed};\npub(crate) use y::*;",
            ),
            ("room/x.rs", "pub struct X; pub struct Other;"),
            ("room/y.rs", "pub fn y() {} // crate::a"),
            ("a.rs", "use crate::room::{self, Renamed};\nfn f() { room::y(); \"crate::b\"; }"),
        ];
        assert_eq!(imported(&files, "a.rs"), ["room/mod.rs", "room/x.rs", "room/y.rs"]);
        assert_eq!(imported(&files, "room/mod.rs"), [""; 0]);
        assert_eq!(imported(&files, "lib.rs"), ["a.rs"]);
    }

    #[test]
    fn a_path_in_the_code_is_an_import_and_test_code_is_none() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "fn f() -> super::b::B { r#\"crate::c::C\"#; '\"'; b'\\''; todo!() }"),
            ("b.rs", "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a; fn f() {} }"),
            (
                "c.rs",
                "#[cfg(test)]\nfn f<A, B>() { crate::a::f() }\nuse super::a as other;\n\
                 pub(in crate::b) fn g() {}",
            ),
        ];
        assert_eq!(imported(&files, "a.rs"), ["b.rs"]);
        assert_eq!(imported(&files, "b.rs"), [""; 0]);
        assert_eq!(imported(&files, "c.rs"), ["a.rs"]);
    }

    #[test]
    fn a_loop_of_any_length_is_found_once() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use super::b::B; pub struct A;"),
            ("b.rs", "use super::c::C; pub struct B;"),
            ("c.rs", "use super::a::A; pub struct C;"),
            ("d.rs", "use super::a::A;"),
        ];
        let (folder, imports) = crate_of(&files);
        let expected = ["a.rs", "b.rs", "c.rs"].map(|file| folder.path().join(file));
        assert_eq!(loops(&imports), [expected.to_vec()]);
    }
}

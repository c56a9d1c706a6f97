//! Rules between the files of one crate: no large circle of imports, and the borders inside `node`. Counted are paths that begin with `crate`,
//! `self`, `super` or the name of a module that the file declares (record 0430).

use super::Finding;
use crate::source::Source;
use crate::tree::TreeFile;
use std::collections::{BTreeMap, BTreeSet};

/// Most files of a crate that may import each other in a circle: so many are read as one.
const CIRCLE_MAX: usize = 8;

/// Crates with larger circles: the commands of `cli` and their context, and the state of `meta`, which is one thing in many files.
const ONE_THING: [&str; 2] = ["cli", "meta"];

/// What the files below a module of a crate do not import. A device serves whoever asks it; the control plane orders; the doors are above
/// both, and what starts the process is above all.
const BORDERS: [(&str, &str, &[&str]); 3] = [
    ("node", "device", &["control", "node", "service", "serve"]),
    ("node", "control", &["service", "serve"]),
    ("node", "service", &["serve"]),
];

/// The imports of one crate: for each module (`device::bags`; empty: `lib.rs`) its file and the modules that it names.
#[derive(Default)]
struct Imports<'a>(BTreeMap<String, (&'a str, BTreeSet<String>)>);

/// Checks the imports between the files of each crate. Those of tests do not count.
pub fn check(files: &[TreeFile]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<(&str, &str, &str)>> = BTreeMap::new();
    for file in files {
        let below = file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        if let (Some((owner, inside)), Some(text)) = (below, &file.text)
            && let Some(module) = inside.strip_suffix(".rs")
        {
            crates.entry(owner).or_default().push((&file.path, module, text));
        }
    }
    let mut findings = Vec::new();
    for (owner, files) in crates {
        let imports = Imports::of(&files);
        findings.extend(imports.across_borders(owner));
        if !ONE_THING.contains(&owner) {
            findings.extend(imports.large_circles());
        }
    }
    findings
}

impl<'a> Imports<'a> {
    fn of(files: &[(&'a str, &str, &str)]) -> Imports<'a> {
        let mut imports = Imports::default();
        for (path, module, _) in files {
            let module = if matches!(*module, "lib" | "main") { String::new() } else { module.replace('/', "::") };
            imports.0.insert(module, (path, BTreeSet::new()));
        }
        let modules: BTreeSet<String> = imports.0.keys().cloned().collect();
        for ((path, _, text), module) in files.iter().zip(files.iter().map(|(_, module, _)| module.replace('/', "::")))
        {
            let Some((_, named)) = imports.0.get_mut(&module) else { continue };
            for import in paths(path, text, &module) {
                // The longest beginning that is a module; what only names the root names nobody.
                let found = (1..=import.len()).rev().map(|length| import[..length].join("::"));
                if let Some(other) =
                    found.into_iter().find(|name| modules.contains(name)).filter(|name| *name != module)
                {
                    named.insert(other);
                }
            }
        }
        imports
    }

    fn across_borders(&self, owner: &str) -> Vec<Finding> {
        let lies_in = |module: &str, room: &str| {
            module.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let mut findings = Vec::new();
        for (_, from, to) in BORDERS.iter().filter(|(crate_name, _, _)| *crate_name == owner) {
            for (_, (path, named)) in self.0.iter().filter(|(module, _)| lies_in(module, from)) {
                for other in named.iter().filter(|other| to.iter().any(|to| lies_in(other, to))) {
                    let what = format!("`{from}` imports `{other}`");
                    findings.push(Finding::new(
                        path,
                        1,
                        what,
                        "turn the arrow round, or move what is shared below both",
                    ));
                }
            }
        }
        findings
    }

    fn large_circles(&self) -> Vec<Finding> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.0.keys().map(|module| (module.as_str(), self.reached(module))).collect();
        let mut seen = BTreeSet::new();
        let mut findings = Vec::new();
        for (module, (path, _)) in &self.0 {
            let circle: Vec<&str> = reached[module.as_str()]
                .iter()
                .copied()
                .filter(|other| reached[other].contains(module.as_str()))
                .collect();
            if circle.len() > CIRCLE_MAX && seen.insert(circle.clone()) {
                let what = format!("{} files import each other: {}", circle.len(), circle.join(", "));
                findings.push(Finding::new(
                    path,
                    1,
                    what,
                    "break the circle: what all of them need goes into a file that needs none of them",
                ));
            }
        }
        findings
    }

    /// Every module to which imports lead from this one.
    fn reached(&self, module: &str) -> BTreeSet<&str> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![module]);
        while let Some(next) = open.pop() {
            for other in self.0.get(next).map(|(_, named)| named).into_iter().flatten() {
                if reached.insert(other.as_str()) {
                    open.push(other);
                }
            }
        }
        reached
    }
}

/// Every path within the crate that the code of a file names outside tests, from the root of the crate.
fn paths(path: &str, text: &str, module: &str) -> Vec<Vec<String>> {
    let source = Source::parse(path, text);
    let lines = source.code.lines().enumerate().filter(|(number, _)| !source.is_test(number + 1));
    let code: Vec<&str> = lines.map(|(_, line)| line).collect();
    let tokens = tokens(&code.join("\n"));
    let here: Vec<String> = module.split("::").map(str::to_string).collect();
    let declared: BTreeSet<&str> = tokens
        .windows(3)
        .filter_map(|window| match [window[0].as_str(), window[1].as_str(), window[2].as_str()] {
            ["mod", name, ";"] => Some(name),
            _ => None,
        })
        .collect();
    let mut found = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        let begins =
            tokens.get(place + 1).is_some_and(|next| next == "::") && (place == 0 || tokens[place - 1] != "::");
        match token.as_str() {
            _ if !begins => continue,
            "crate" => expand(&tokens, place + 2, &[], &mut found),
            "self" => expand(&tokens, place + 2, &here, &mut found),
            "super" => expand(&tokens, place + 2, &here[..here.len() - 1], &mut found),
            name if declared.contains(name) => expand(&tokens, place, &here, &mut found),
            _ => continue,
        };
    }
    found
}

/// Identifiers, `::` and single marks.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut characters = code.chars().peekable();
    while let Some(character) = characters.next() {
        if character.is_alphanumeric() || character == '_' {
            let mut word = String::from(character);
            while let Some(next) = characters.next_if(|next| next.is_alphanumeric() || *next == '_') {
                word.push(next);
            }
            tokens.push(word);
        } else if character == ':' && characters.next_if_eq(&':').is_some() {
            tokens.push("::".to_string());
        } else if !character.is_whitespace() {
            tokens.push(character.to_string());
        }
    }
    tokens
}

/// Follows a path, or a tree of them in braces, from the token at `place`; answers with the place behind it.
fn expand(tokens: &[String], mut place: usize, base: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = base.to_vec();
    loop {
        match tokens.get(place).map(String::as_str) {
            Some("{") => {
                place += 1;
                while tokens.get(place).is_some_and(|token| token != "}") {
                    let next = expand(tokens, place, &path, found);
                    place = if next == place { next + 1 } else { next };
                }
                return place + 1;
            }
            Some("super") => drop(path.pop()),
            Some("self") => (),
            Some(word) if word.starts_with(|first: char| first.is_alphabetic() || first == '_') => {
                path.push(word.to_string())
            }
            _ => return place,
        }
        place += 1;
        if tokens.get(place).is_none_or(|token| token != "::") {
            found.push(path);
            return place;
        }
        place += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{CIRCLE_MAX, check};
    use crate::tree::TreeFile;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| TreeFile { path: path.to_string(), text: Some(text.to_string()) };
        let files: Vec<TreeFile> = files.iter().map(file).collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    /// So many files in a ring, each of which imports the next one in this way.
    fn ring(owner: &str, count: usize, import: impl Fn(usize) -> String) -> Vec<(String, String)> {
        let file = |number| (format!("crates/{owner}/src/m{number}.rs"), import((number + 1) % count));
        (0..count).map(file).collect()
    }

    fn of_ring(files: &[(String, String)]) -> Vec<String> {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        findings(&files)
    }

    /// A circle is found however its imports are written, once, and not where it is small or one thing.
    #[test]
    fn circles() {
        let plain = |next| format!("use crate::m{next}::Thing;\n");
        let nested = |next| format!("use crate::{{a::b, m{next}::{{self, Thing}}}};\n");
        let relative = |next| format!("use super::m{next};\n");
        let in_code = |next| format!("fn a() {{\n    crate::m{next}::act();\n}}\n");
        for import in [&plain as &dyn Fn(usize) -> String, &nested, &relative, &in_code] {
            let found = of_ring(&ring("chunk", CIRCLE_MAX + 1, import));
            assert!(found.len() == 1 && found[0].contains("9 files import each other: m0, m1,"), "{found:?}");
        }
        assert_eq!(of_ring(&ring("chunk", CIRCLE_MAX, plain)), [""; 0]);
        assert_eq!(of_ring(&ring("meta", CIRCLE_MAX + 1, plain)), [""; 0]);
        let tests = |next| format!("#[cfg(test)]\nmod tests {{\n    use crate::m{next}::Thing;\n}}\n");
        assert_eq!(of_ring(&ring("chunk", CIRCLE_MAX + 1, tests)), [""; 0]);
        let comments = |next| format!("//! See crate::m{next}::Thing.\n");
        assert_eq!(of_ring(&ring("chunk", CIRCLE_MAX + 1, comments)), [""; 0]);
    }

    /// A parent that calls what lies in a module of its own leads there.
    #[test]
    fn parents() {
        let files = |text: &str| {
            let parents = (0..5).map(|number| (format!("crates/chunk/src/m{number}.rs"), text.to_string()));
            let below = |number| {
                (format!("crates/chunk/src/m{number}/kid.rs"), format!("use crate::m{}::Thing;\n", (number + 1) % 5))
            };
            parents.chain((0..5).map(below)).collect::<Vec<_>>()
        };
        let found = of_ring(&files("mod kid;\nfn f() {\n    kid::act();\n}\n"));
        assert!(found.len() == 1 && found[0].contains("10 files import each other: m0, m0::kid,"), "{found:?}");
        assert_eq!(of_ring(&files("mod kid;\nfn f() {\n    other::kid::act();\n}\n")), [""; 0]);
    }

    /// What lies below does not import what lies above; names that only begin alike are others.
    #[test]
    fn borders() {
        let files = |text| {
            [
                ("crates/node/src/device/bags.rs", text),
                ("crates/node/src/control.rs", ""),
                ("crates/node/src/control/job.rs", ""),
            ]
        };
        let found = findings(&files("use crate::control::job::Job;\n"));
        assert!(found.len() == 1 && found[0].contains("`device` imports `control::job`"), "{found:?}");
        assert_eq!(findings(&files("use crate::controls::job::Job;\nuse super::control::Kept;\n")), [""; 0]);
        let allowed =
            [("crates/node/src/control/job.rs", "use crate::device::Device;\n"), ("crates/node/src/device.rs", "")];
        assert_eq!(findings(&allowed), [""; 0]);
    }
}

//! Rust text as tidy sees it: what is code, what is comment, what is test, where functions begin and end.

/// One source file, split. `code` and `comments` have the same lines as the file, with everything else blanked by spaces.
pub struct Source {
    /// The code without comments and without what stands between quotes.
    pub code: String,
    /// The comments alone.
    pub comments: String,
    /// For each line, whether it belongs to tests.
    pub test_lines: Vec<bool>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub length: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    /// Block comments nest; this is how deep.
    BlockComment(usize),
    /// Ends at a quote followed by this many `#`; without `raw` a backslash escapes.
    Text {
        raw: bool,
        hashes: usize,
    },
    Character,
}

impl Source {
    /// Splits the text of the file at `path`.
    pub fn parse(path: &str, text: &str) -> Source {
        let (code, comments) = split(text);
        let test_lines = test_lines(path, &code);
        Source { code, comments, test_lines }
    }

    /// Whether the line, from 1, belongs to tests.
    pub fn is_test(&self, line: usize) -> bool {
        self.test_lines.get(line - 1).copied().unwrap_or(false)
    }

    /// Every identifier and keyword of the code, with its byte offset in `code`.
    pub fn identifiers(&self) -> Vec<(usize, &str)> {
        let mut found = Vec::new();
        let mut start = None;
        for (offset, character) in self.code.char_indices().chain([(self.code.len(), ' ')]) {
            let inside = character.is_alphanumeric() || character == '_';
            match start {
                None if inside => start = Some(offset),
                Some(from) if !inside => {
                    found.push((from, &self.code[from..offset]));
                    start = None;
                }
                _ => {}
            }
        }
        found.retain(|(_, word)| !word.starts_with(|first: char| first.is_ascii_digit()));
        found
    }

    /// The line of a byte offset of `code`, from 1.
    pub fn line_of(&self, offset: usize) -> usize {
        1 + self.code[..offset].matches('\n').count()
    }

    /// Every function with a body, in the order of their lines.
    pub fn functions(&self) -> Vec<Function> {
        let identifiers = self.identifiers();
        let mut functions = Vec::new();
        for pair in identifiers.windows(2) {
            let [(offset, "fn"), (name_offset, name)] = pair else { continue };
            // `fn(u8) -> u8` is a type: a name follows at once in a definition.
            if !self.code[offset + 2..*name_offset].trim().is_empty() {
                continue;
            }
            if let Some(end) = body_end(&self.code, name_offset + name.len()) {
                let line = self.line_of(*offset);
                functions.push(Function { name: (*name).to_owned(), line, length: self.line_of(end) - line + 1 });
            }
        }
        functions
    }
}

/// The offset of the brace that closes the body which follows `from`; none if a `;` ends the declaration first.
fn body_end(code: &str, from: usize) -> Option<usize> {
    let (mut braces, mut others) = (0_usize, 0_usize);
    for (offset, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' if braces == 0 => others += 1,
            b')' | b']' if braces == 0 => others = others.saturating_sub(1),
            b';' if braces == 0 && others == 0 => return None,
            b'{' => braces += 1,
            b'}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return Some(offset);
                }
            }
            _ => {}
        }
    }
    None
}

fn split(text: &str) -> (String, String) {
    let characters: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::with_capacity(text.len()), String::with_capacity(text.len()));
    let mut state = State::Code;
    let mut place = 0;
    while place < characters.len() {
        let (taken, next) = step(state, &characters, place);
        for character in &characters[place..place + taken] {
            // A token that opens or closes belongs to the side that is not code.
            let in_code = state == State::Code && next == State::Code;
            let in_comment = is_comment(state) || is_comment(next);
            code.push(if in_code || *character == '\n' { *character } else { ' ' });
            comments.push(if in_comment || *character == '\n' { *character } else { ' ' });
        }
        state = next;
        place += taken;
    }
    (code, comments)
}

fn is_comment(state: State) -> bool {
    matches!(state, State::LineComment | State::BlockComment(_))
}

/// How many characters the token at `place` takes, and the state after it.
fn step(state: State, characters: &[char], place: usize) -> (usize, State) {
    let at = |ahead: usize| characters.get(place + ahead).copied().unwrap_or('\0');
    match state {
        State::Code => step_code(characters, place),
        State::LineComment if at(0) == '\n' => (1, State::Code),
        State::LineComment => (1, state),
        State::BlockComment(depth) => match (at(0), at(1)) {
            ('/', '*') => (2, State::BlockComment(depth + 1)),
            ('*', '/') if depth == 1 && place + 1 < characters.len() => (2, State::Code),
            ('*', '/') => (2, State::BlockComment(depth - 1)),
            _ => (1, state),
        },
        State::Text { raw: false, .. } | State::Character if at(0) == '\\' && place + 1 < characters.len() => {
            (2, state)
        }
        State::Text { hashes, .. } if at(0) == '"' && (1..=hashes).all(|ahead| at(ahead) == '#') => {
            (1 + hashes, State::Code)
        }
        State::Character if at(0) == '\'' => (1, State::Code),
        State::Text { .. } | State::Character => (1, state),
    }
}

fn step_code(characters: &[char], place: usize) -> (usize, State) {
    let at = |ahead: usize| characters.get(place + ahead).copied().unwrap_or('\0');
    let in_word = place > 0 && (characters[place - 1].is_alphanumeric() || characters[place - 1] == '_');
    match (at(0), at(1)) {
        ('/', '/') => (2, State::LineComment),
        ('/', '*') => (2, State::BlockComment(1)),
        ('"', _) => (1, State::Text { raw: false, hashes: 0 }),
        // A lifetime has no closing quote after its first character; a character has, or it starts with a backslash.
        ('\'', '\\') => (1, State::Character),
        ('\'', _) if at(2) == '\'' => (1, State::Character),
        ('r', _) if !in_word => raw_text(characters, place, 1),
        ('b' | 'c', 'r') if !in_word => raw_text(characters, place, 2),
        _ => (1, State::Code),
    }
}

/// A raw string if hashes and a quote follow the prefix; otherwise one character of code.
fn raw_text(characters: &[char], place: usize, prefix: usize) -> (usize, State) {
    let hashes = characters[place + prefix..].iter().take_while(|character| **character == '#').count();
    match characters.get(place + prefix + hashes) {
        Some('"') => (prefix + hashes + 1, State::Text { raw: true, hashes }),
        _ => (1, State::Code),
    }
}

/// Test files whole; elsewhere what `#[cfg(test)]` stands before, to the end of its item.
fn test_lines(path: &str, code: &str) -> Vec<bool> {
    let count = code.lines().count();
    if path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/benches/") {
        return vec![true; count];
    }
    let mut marked = vec![false; count];
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]").map(|found| from + found) {
        let after = found + "#[cfg(test)]".len();
        // An item without a body (`mod tests;`, `use x;`) ends at its semicolon, on the marked line or the next ones.
        let end =
            body_end(code, after).unwrap_or_else(|| code[after..].find(';').map_or(code.len(), |end| after + end));
        let first = code[..found].matches('\n').count();
        let last = code[..end].matches('\n').count();
        marked.iter_mut().take(last + 1).skip(first).for_each(|line| *line = true);
        from = after;
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::{Function, Source};

    /// Comments, strings and characters of every spelling are taken out of the code; lifetimes and lines stay.
    #[test]
    fn splitting() {
        let text = "let a = \"x // {\"; // note {\nlet b: &'a str = r#\"y \" {\"#; /* one /* two */ { */ let c = '{';\nlet d = b'\\'';";
        let source = Source::parse("a.rs", text);
        assert!(!source.code.contains('{') && !source.code.contains("note"), "{}", source.code);
        assert!(
            source.code.contains("let b: &'a str")
                && source.code.contains("let c =")
                && source.code.contains("let d =")
        );
        assert!(
            source.comments.contains("note {") && source.comments.contains("two") && !source.comments.contains('x')
        );
        assert_eq!(source.code.lines().count(), 3);
    }

    /// A function is measured from its `fn` to its closing brace, whatever braces its strings and types hold.
    #[test]
    fn functions() {
        let text = "trait T {\n    fn none(&self) -> [u8; 4];\n}\npub async fn one(\n    a: fn(u8) -> u8,\n    b: [u8; 2],\n) -> u8 {\n    if a { \"}\" } else { '}' }\n}\nfn two() {}\n";
        let found = Source::parse("a.rs", text).functions();
        let expected = [
            Function { name: "one".to_owned(), line: 4, length: 6 },
            Function { name: "two".to_owned(), line: 10, length: 1 },
        ];
        assert_eq!(found, expected);
    }

    /// Lines under `#[cfg(test)]` are tests, those after it are not; a file under tests/ is a test whole.
    #[test]
    fn tests_are_marked() {
        let text =
            "fn a() {}\n#[cfg(test)]\nuse x::y;\nfn b() {}\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\nfn d() {}\n";
        let marks = Source::parse("crates/a/src/lib.rs", text).test_lines;
        assert_eq!(marks, [false, true, true, false, true, true, true, true, false]);
        assert!(Source::parse("crates/a/tests/a/main.rs", text).test_lines.iter().all(|mark| *mark));
    }
}

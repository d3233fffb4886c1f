//! The first fault in the syntax of a query, in the words that clients of the reference implementation know.
//!
//! The parser that builds the tree of a query names faults in its own way. So a query is read here first; what passes
//! is also known not to nest deeper than [`DEEPEST`], whatever kind of nesting it is.

use std::fmt::Write as _;

use super::lexer::{Kind, Lexer, Token};

/// Levels of braces, brackets and parentheses in a query.
const DEEPEST: usize = 64;

/// Where a query is not well-formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Byte in the query.
    pub(crate) at: usize,
    /// What is wrong there.
    pub(crate) what: String,
}

/// Says what is wrong with the syntax of a query, if anything is.
pub(crate) fn check(query: &str) -> Result<(), String> {
    Reader::new(query)
        .and_then(|mut reader| reader.document())
        .map_err(|fault| explain(query, &fault))
}

/// The fault with its place and the lines around it.
fn explain(query: &str, fault: &Fault) -> String {
    let lines = lines(query);
    let number = lines.partition_point(|(start, _)| *start <= fault.at).max(1);
    let line = |number: usize| number.checked_sub(1).and_then(|index| lines.get(index));
    let column = fault.at - line(number).map_or(0, |(start, _)| *start) + 1;
    let mut text = format!("Syntax Error GraphQL ({number}:{column}) {}\n\n", fault.what);
    let width = (number + 1).to_string().len();
    let show = |text: &mut String, number: usize| {
        if let Some((_, line)) = line(number) {
            let _ = writeln!(text, "{number:>width$}: {}", printable(line));
        }
    };
    show(&mut text, number - 1);
    show(&mut text, number);
    let _ = writeln!(text, "{:indent$}^", "", indent = width + column + 1);
    show(&mut text, number + 1);
    text
}

/// Where each line starts, and its text.
fn lines(query: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in query.split_inclusive('\n') {
        let text = line.trim_end_matches('\n');
        let mut inner = start;
        let text = text
            .strip_suffix('\r')
            .filter(|_| line.ends_with('\n'))
            .unwrap_or(text);
        for part in text.split('\r') {
            lines.push((inner, part));
            inner += part.len() + 1;
        }
        start += line.len();
    }
    if lines.is_empty() || query.ends_with('\n') {
        lines.push((query.len(), ""));
    }
    lines
}

fn printable(line: &str) -> String {
    line.chars()
        .fold(String::with_capacity(line.len()), |mut text, character| {
            if character < ' ' {
                let _ = write!(text, "\\u{:04X}", u32::from(character));
            } else {
                text.push(character);
            }
            text
        })
}

/// Whether a value may hold variables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variables {
    Allowed,
    Forbidden,
}

struct Reader<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn new(query: &'a str) -> Result<Self, Fault> {
        let mut lexer = Lexer::new(query);
        let token = lexer.next()?;
        Ok(Self {
            lexer,
            token,
            depth: 0,
        })
    }

    fn document(&mut self) -> Result<(), Fault> {
        while !self.peek(Kind::End) {
            match (self.token.kind, self.token.text) {
                (Kind::OpenBrace, _) => self.selection_set()?,
                (Kind::Name, "query" | "mutation" | "subscription") => self.operation()?,
                (Kind::Name, "fragment") => self.fragment()?,
                _ => return Err(self.unexpected()),
            }
        }
        Ok(())
    }

    fn operation(&mut self) -> Result<(), Fault> {
        self.advance()?;
        if self.peek(Kind::Name) {
            self.advance()?;
        }
        if self.peek(Kind::OpenParenthesis) {
            self.some(
                Kind::OpenParenthesis,
                Kind::CloseParenthesis,
                Self::variable_definition,
            )?;
        }
        self.directives()?;
        self.selection_set()
    }

    fn variable_definition(&mut self) -> Result<(), Fault> {
        self.variable()?;
        self.expect(Kind::Colon)?;
        self.type_reference()?;
        if self.skip(Kind::Equals)? {
            self.value(Variables::Forbidden)?;
        }
        self.directives()
    }

    fn variable(&mut self) -> Result<(), Fault> {
        self.expect(Kind::Dollar)?;
        self.expect(Kind::Name)
    }

    fn type_reference(&mut self) -> Result<(), Fault> {
        if self.peek(Kind::OpenBracket) {
            self.nested(|reader| {
                reader.advance()?;
                reader.type_reference()?;
                reader.expect(Kind::CloseBracket)
            })?;
        } else {
            self.expect(Kind::Name)?;
        }
        self.skip(Kind::Bang).map(drop)
    }

    fn fragment(&mut self) -> Result<(), Fault> {
        self.advance()?;
        if self.token.text == "on" {
            return Err(self.unexpected());
        }
        self.expect(Kind::Name)?;
        if (self.token.kind, self.token.text) != (Kind::Name, "on") {
            return Err(self.fault(format!("Expected \"on\", found {}", self.token)));
        }
        self.advance()?;
        self.expect(Kind::Name)?;
        self.directives()?;
        self.selection_set()
    }

    fn selection_set(&mut self) -> Result<(), Fault> {
        self.some(Kind::OpenBrace, Kind::CloseBrace, Self::selection)
    }

    fn selection(&mut self) -> Result<(), Fault> {
        if !self.skip(Kind::Spread)? {
            return self.field();
        }
        if self.peek(Kind::Name) && self.token.text != "on" {
            self.advance()?;
            return self.directives();
        }
        if self.peek(Kind::Name) {
            self.advance()?;
            self.expect(Kind::Name)?;
        }
        self.directives()?;
        self.selection_set()
    }

    fn field(&mut self) -> Result<(), Fault> {
        self.expect(Kind::Name)?;
        if self.skip(Kind::Colon)? {
            self.expect(Kind::Name)?;
        }
        self.arguments()?;
        self.directives()?;
        if self.peek(Kind::OpenBrace) {
            self.selection_set()?;
        }
        Ok(())
    }

    fn arguments(&mut self) -> Result<(), Fault> {
        if self.peek(Kind::OpenParenthesis) {
            self.some(Kind::OpenParenthesis, Kind::CloseParenthesis, |reader| {
                reader.member(Variables::Allowed)
            })?;
        }
        Ok(())
    }

    fn directives(&mut self) -> Result<(), Fault> {
        while self.skip(Kind::At)? {
            self.expect(Kind::Name)?;
            self.arguments()?;
        }
        Ok(())
    }

    /// `name: value`, an argument or a member of an object.
    fn member(&mut self, variables: Variables) -> Result<(), Fault> {
        self.expect(Kind::Name)?;
        self.expect(Kind::Colon)?;
        self.value(variables)
    }

    fn value(&mut self, variables: Variables) -> Result<(), Fault> {
        match self.token.kind {
            Kind::OpenBracket => self.any(Kind::OpenBracket, Kind::CloseBracket, |reader| {
                reader.value(variables)
            }),
            Kind::OpenBrace => self.any(Kind::OpenBrace, Kind::CloseBrace, |reader| {
                reader.member(variables)
            }),
            Kind::Integer | Kind::Float | Kind::Text | Kind::Block | Kind::Name => self.advance(),
            Kind::Dollar if variables == Variables::Allowed => self.variable(),
            _ => Err(self.unexpected()),
        }
    }

    /// One or more items between two marks.
    fn some(
        &mut self,
        open: Kind,
        close: Kind,
        item: impl Fn(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.expect(open)?;
        self.nested(|reader| {
            item(reader)?;
            reader.until(close, item)
        })
    }

    /// Items between two marks, if there are any.
    fn any(
        &mut self,
        open: Kind,
        close: Kind,
        item: impl Fn(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.expect(open)?;
        self.nested(|reader| reader.until(close, item))
    }

    /// Items before a mark, which is read too.
    fn until(&mut self, close: Kind, item: impl Fn(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        while !self.skip(close)? {
            item(self)?;
        }
        Ok(())
    }

    fn nested(&mut self, inside: impl FnOnce(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        if self.depth == DEEPEST {
            return Err(self.fault(format!("Nested deeper than {DEEPEST} levels")));
        }
        self.depth += 1;
        inside(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn peek(&self, kind: Kind) -> bool {
        self.token.kind == kind
    }

    fn advance(&mut self) -> Result<(), Fault> {
        self.token = self.lexer.next()?;
        Ok(())
    }

    fn skip(&mut self, kind: Kind) -> Result<bool, Fault> {
        let found = self.peek(kind);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, kind: Kind) -> Result<(), Fault> {
        if self.skip(kind)? {
            Ok(())
        } else {
            Err(self.fault(format!("Expected {}, found {}", kind.label(), self.token)))
        }
    }

    fn unexpected(&self) -> Fault {
        self.fault(format!("Unexpected {}", self.token))
    }

    fn fault(&self, what: String) -> Fault {
        Fault {
            at: self.token.start,
            what,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_well_formed_passes() {
        for query in [
            "",
            " # nothing\n",
            "{ a }",
            "query Q($a: [Int!]! = [1, -2.5e3], $b: X = {k: \"v\"}) @d(x: $a) { a: b(c: $a, d: ENUM, e: null) { f } ...F ... on T { g } ... @include(if: true) { h } }",
            "fragment F on T { a(text: \"\"\"block \"quoted\" \\\"\"\" end\"\"\") }",
            "mutation { a } subscription S { b(s: \"\\u00e9\\n\") }",
            "{a,b,,c}",
        ] {
            assert_eq!(check(query), Ok(()), "{query}");
        }
    }

    #[test]
    fn the_first_fault_is_named_with_its_place() {
        let check = |query: &str, expected: &str| {
            let text = super::check(query).unwrap_err();
            let first = text.lines().next().unwrap_or_default();
            assert_eq!(
                first.strip_prefix("Syntax Error GraphQL "),
                Some(expected),
                "{query}"
            );
        };
        check("{", "(1:2) Expected Name, found EOF");
        check("{}", "(1:2) Expected Name, found }");
        check("nope", "(1:1) Unexpected Name \"nope\"");
        check("{ a(b: ) }", "(1:8) Unexpected )");
        check("{ a() }", "(1:5) Expected Name, found )");
        check("{ a(b 1) }", "(1:7) Expected :, found Int \"1\"");
        check("query ($a Int) { a }", "(1:11) Expected :, found Name \"Int\"");
        check("query ($a: Int = $b) { a }", "(1:18) Unexpected $");
        check("fragment on on T { a }", "(1:10) Unexpected Name \"on\"");
        check("fragment F T { a }", "(1:12) Expected \"on\", found Name \"T\"");
        check("{ a } }", "(1:7) Unexpected }");
        check("{\n  a\n  ?\n}", "(3:3) Unexpected character \"?\".");
        check("{ a(b: \"x) }", "(1:13) Unterminated string.");
        check(
            "{ a(b: 01) }",
            "(1:9) Invalid number, unexpected digit after 0: \"1\".",
        );
        check("{ ..a }", "(1:3) Unexpected character \".\".");
        check(&"{a".repeat(65), "(1:130) Nested deeper than 64 levels");
        check(
            &format!("{{ a(b: {}", "[".repeat(70)),
            "(1:71) Nested deeper than 64 levels",
        );
    }

    #[test]
    fn the_lines_around_a_fault_are_shown() {
        assert_eq!(
            check("{").unwrap_err(),
            "Syntax Error GraphQL (1:2) Expected Name, found EOF\n\n1: {\n    ^\n"
        );
        assert_eq!(
            check("{\n\ta(:)\n}").unwrap_err(),
            "Syntax Error GraphQL (2:4) Expected Name, found :\n\n1: {\n2: \\u0009a(:)\n      ^\n3: }\n"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "[{}()\\[\\]$!:=@|&. \"\\\\a-z0-9#\r\n\\PC]{0,200}") {
            let _ = check(&text);
        }
    }
}

//! The two READMEs state the same facts, and the guide lists its pages.

const ENGLISH: &str = include_str!("../../README.md");
const CHINESE: &str = include_str!("../../README.zh-CN.md");

/// Returns the lines inside fences, without comments, and those outside.
fn split(text: &str) -> (Vec<String>, Vec<&str>) {
    let (mut code, mut prose) = (Vec::new(), Vec::new());
    let mut is_inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_inside = !is_inside;
            code.push(line.to_owned());
        } else if is_inside {
            code.push(line.split("//").next().unwrap_or_default().trim_end().to_owned());
        } else {
            prose.push(line);
        }
    }
    (code, prose)
}

/// Returns the parts of `line` between backticks, in the order of the alphabet: sentences may
/// differ in theirs.
fn names(line: &str) -> Vec<&str> {
    let mut names: Vec<_> = line.split('`').skip(1).step_by(2).collect();
    names.sort_unstable();
    names
}

/// Returns the bullets with their further lines, each as one line.
fn bullets(prose: &[&str]) -> Vec<String> {
    let mut bullets: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in prose {
        if line.starts_with("- ") {
            bullets.push((*line).to_owned());
            is_open = true;
        } else if is_open && line.starts_with("  ") {
            let bullet = bullets.last_mut().expect("a bullet is open");
            bullet.push(' ');
            bullet.push_str(line.trim());
        } else {
            is_open = false;
        }
    }
    bullets
}

#[test]
fn both_readmes_have_the_same_code() {
    assert_eq!(split(ENGLISH).0, split(CHINESE).0);
}

#[test]
fn both_readmes_have_the_same_tables() {
    let rows = |text| -> Vec<String> {
        let (_, prose) = split(text);
        prose.into_iter().filter(|line| line.starts_with('|')).map(str::to_owned).collect()
    };
    let (english, chinese) = (rows(ENGLISH), rows(CHINESE));
    for (english, chinese) in english.iter().zip(&chinese) {
        assert_eq!(names(english), names(chinese), "{english}\n{chinese}");
    }
    assert_eq!(english.len(), chinese.len());
}

#[test]
fn both_readmes_have_the_same_bullets() {
    let (english, chinese) = (bullets(&split(ENGLISH).1), bullets(&split(CHINESE).1));
    for (english, chinese) in english.iter().zip(&chinese) {
        assert_eq!(names(english), names(chinese), "{english}\n{chinese}");
    }
    assert_eq!(english.len(), chinese.len());
}

#[test]
fn the_readme_has_at_most_1_500_words() {
    assert!(ENGLISH.split_whitespace().count() <= 1_500);
}

#[test]
fn the_table_of_the_guide_lists_every_page_in_order() {
    let table = include_str!("README.md");
    let source = include_str!("../guide.rs");
    let listed: Vec<_> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split("[`").nth(1)?.split('`').next())
        .collect();
    let pages: Vec<_> = source
        .lines()
        .filter_map(|line| Some(line.strip_prefix("    ")?.split_once(": \"src/")?.0))
        .collect();
    assert_eq!(listed, pages);
    for page in &pages {
        assert!(table.contains(&format!("[`{page}`]({page}.md)")), "{page} in the table");
        assert!(source.contains(&format!("{page}: \"src/guide/{page}.md\"")), "{page} in rustdoc");
    }
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide")).unwrap();
    let markdown = files.filter(|file| file.as_ref().unwrap().path().extension().unwrap() == "md");
    assert_eq!(markdown.count(), pages.len() + 1);
}

#[test]
fn the_readme_lists_the_first_arguments_in_the_order_of_the_attributes_page() {
    let first_cells = |text: &'static str, head: &str| -> Vec<&str> {
        let (_, table) = text.split_once(head).expect("the table");
        let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("| "));
        let cells = rows.map(|row| row.trim_start_matches(['[', '`']).split(['`', '(', '|']));
        cells.filter_map(|mut cell| cell.next()).collect()
    };
    let page = first_cells(include_str!("../attribute.md"), "| argument | form |");
    let first = first_cells(ENGLISH, "| argument | meaning |");
    assert_eq!(first.len(), 12);
    let mut rest = page.iter();
    assert!(first.iter().all(|argument| rest.any(|it| it == argument)), "{first:?}");
    let groups = page.iter().filter(|cell| cell.starts_with('*')).count();
    assert!(ENGLISH.contains(&format!("[All {} are explained]", page.len() - groups)));
}

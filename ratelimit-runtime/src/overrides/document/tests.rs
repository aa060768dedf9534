use std::time::Duration;

use super::*;

fn parse(text: &str) -> Result<Layer, Fault> {
    super::parse(text, &Identities::default())
}

#[test]
fn a_document_is_read_in_toml_and_in_json() {
    let toml = parse(
        r#"
        enforcement = "on"

        [limits]
        search = "dry_run"

        [limits."app::reply"]
        period = "1m 30s"
        threshold = 10
        enforcement = "off"

        [limits.mail]
        tiers = [{ period = 60, threshold = 2 }, { period = "1h", threshold = 10 }]

        [limits.paced]
        burst = 3
        "#,
    );
    let json = parse(
        r#"{
            "enforcement": "on",
            "limits": {
                "search": { "enforcement": "dry_run" },
                "app::reply": { "period": 90, "threshold": 10, "enforcement": "off" },
                "mail": { "tiers": [
                    { "period": "1m", "threshold": 2 }, { "period": 3600, "threshold": 10 }
                ] },
                "paced": { "burst": 3 }
            }
        }"#,
    );
    let toml = toml.unwrap();
    assert_eq!(json, Ok(toml.clone()));
    assert_eq!(toml.of_limit("*").unwrap().enforcement, Some(Enforcement::On));
    let seconds = Duration::from_secs;
    let expected = [
        (
            "app::reply",
            Override::new().period(seconds(90)).threshold(10).enforcement(Enforcement::Off),
        ),
        ("mail", Override::new().tier(seconds(60), 2).tier(seconds(3600), 10)),
        ("paced", Override::new().burst(3)),
        ("search", Override::new().enforcement(Enforcement::DryRun)),
    ];
    let limits = toml.of_limits().filter(|(name, _)| *name != "*");
    let limits: Vec<_> = limits.map(|(name, it)| (name, it.clone())).collect();
    assert_eq!(limits, expected);
    assert_eq!(parse(""), Ok(Layer::default()));
}

#[test]
fn an_unreadable_document_is_an_error_with_its_place() {
    for (text, parts) in [
        ("[limits.reply]\nthreshold = -1", ["line 2", "-1"]),
        ("[limits.reply]\nthreshhold = 1", ["line 2", "unknown field `threshhold`"]),
        ("[limits.reply]\nperiod = \"30\"", ["line 2", "`period` needs a unit after `30`"]),
        ("[limits.reply]\nperiod = -30", ["line 2", "`period` cannot be negative"]),
        ("[limits.reply]\nperiod = 1.5", ["line 2", "a whole number of seconds"]),
        ("[limits]\nreply = 5", ["line 2", "a table such as { threshold = 10 }"]),
        ("[limits]\nreply = \"dry-run\"", ["line 2", "unknown variant `dry-run`"]),
        ("limit = 1", ["line 1", "unknown field `limit`"]),
        ("enforcement = \"off\"\n[limits]\n\"*\" = \"on\"", ["limit `*`", "give one"]),
        ("[limits.reply", ["line 1", "TOML parse error"]),
        (
            "{\n\"limits\": {\"reply\": {\"threshold\": 5000000000}}}",
            ["line 2", "a whole number up to"],
        ),
        ("[limits.reply]\nburst = \"10\"", ["line 2", "`burst`"]),
        ("[limits.reply]\nscale = nan", ["line 2", "`scale` must be 0.001 to 1000, not NaN"]),
    ] {
        let message = parse(text).unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
    }
}

#[test]
fn an_override_is_parsed_from_its_own_text() {
    for what in [
        Override::new(),
        Override::new().enforcement(Enforcement::DryRun),
        Override::new().period(Duration::from_millis(1_500)).threshold(2),
        Override::new().tier(Duration::from_secs(1), 2).tier(Duration::from_secs(60), 9),
        Override::new().burst(7),
    ] {
        assert_eq!(parse_one(&what.to_string()), Ok(what));
    }
    assert_eq!(parse_one(" off\n"), Ok(Override::new().enforcement(Enforcement::Off)));
    for (text, field) in [("{\"concurrency\": true}", "`concurrency`"), ("{\"by\": 1}", "a string")]
    {
        let message = parse_one(text).unwrap_err().to_string();
        assert!(message.contains(field), "{text}: {message}");
    }
    let message = parse_one("of").unwrap_err().to_string();
    assert!(message.starts_with("`of` is none of on, dry_run and off"), "{message}");
}

//! GraphQL, the list of catalogs, the search, and how refusals look.

use olm_platform::listener::Limits;
use serde_json::{Value, json};

use crate::support::{Running, fill, post, put, request, start};

const GRAPHQL: &str = "/catalogs/cat/api/v1/graphql";

async fn started() -> Running {
    let running = start(Limits::default()).await;
    put(
        &running.store,
        "cat",
        [
            (
                "olm.package",
                "",
                "db",
                r#"{"defaultChannel":"stable","description":"A database.\n\nLong.","name":"db","schema":"olm.package"}"#,
            ),
            (
                "olm.channel",
                "db",
                "stable",
                r#"{"entries":[{"name":"db.v1"},{"name":"db.v2","replaces":"db.v1","skips":["db.v0"]}],"name":"stable","package":"db","schema":"olm.channel"}"#,
            ),
            (
                "olm.bundle",
                "db",
                "db.v1",
                r#"{"image":"r/db:1","name":"db.v1","package":"db","properties":[{"type":"olm.package","value":{"packageName":"db","version":"1.0.0"}}],"schema":"olm.bundle"}"#,
            ),
            (
                "olm.bundle",
                "db",
                "db.v2",
                r#"{"image":"r/db:2","name":"db.v2","package":"db","properties":[{"type":"olm.package","value":{"packageName":"db","version":"2.0.0"}},{"type":"olm.gvk","value":{"group":"db.io","kind":"Database","version":"v1"}}],"schema":"olm.bundle"}"#,
            ),
        ],
    );
    running
}

async fn ask(running: &Running, question: Value) -> Value {
    let answer = post(running.address, GRAPHQL, "", &question.to_string()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    serde_json::from_slice(&answer.body).unwrap()
}

#[tokio::test]
async fn graphql_answers_what_is_asked_for() {
    let running = started().await;
    let check = async |query: &str, expected: Value| {
        let answer = ask(&running, json!({ "query": query })).await;
        assert_eq!(answer, json!({ "data": expected }), "{query}");
    };
    check(
        "{ olmbundles { name image } }",
        json!({ "olmbundles": [{ "name": "db.v1", "image": "r/db:1" }, { "name": "db.v2", "image": "r/db:2" }] }),
    )
    .await;
    check(
        "{ olmbundles(limit: 1, offset: 1) { n: name __typename } }",
        json!({ "olmbundles": [{ "n": "db.v2", "__typename": "OlmBundle" }] }),
    )
    .await;
    check(
        "{ olmbundles(limit: 0, offset: -5) { name } }",
        json!({ "olmbundles": [{ "name": "db.v1" }, { "name": "db.v2" }] }),
    )
    .await;
    check(
        "{ olmbundles(filter: {name: \"db.v2\", package: \"db\"}) { properties { type value } } }",
        json!({ "olmbundles": [{ "properties": [
            { "type": "olm.package", "value": "{\"packageName\":\"db\",\"version\":\"2.0.0\"}" },
            { "type": "olm.gvk", "value": "{\"group\":\"db.io\",\"kind\":\"Database\",\"version\":\"v1\"}" },
        ] }] }),
    )
    .await;
    check(
        "{ olmbundles(filter: {image: \"r/db:1\"}) { name } none: olmbundles(filter: {name: \"x\"}) { name } }",
        json!({ "olmbundles": [{ "name": "db.v1" }], "none": [] }),
    )
    .await;
    check(
        "{ olmchannels { entries { name replaces skips } } }",
        json!({ "olmchannels": [{ "entries": [
            { "name": "db.v1", "replaces": null, "skips": null },
            { "name": "db.v2", "replaces": "db.v1", "skips": ["db.v0"] },
        ] }] }),
    )
    .await;
    check(
        "{ summary { totalSchemas schemas { name totalObjects totalFields } } }",
        json!({ "summary": { "totalSchemas": 3, "schemas": [
            { "name": "olm.bundle", "totalObjects": 2, "totalFields": 5 },
            { "name": "olm.channel", "totalObjects": 1, "totalFields": 4 },
            { "name": "olm.package", "totalObjects": 1, "totalFields": 4 },
        ] } }),
    )
    .await;
    check(
        "{ __schema { queryType { name } } ...F } fragment F on Query { olmpackages { ... on OlmPackage { name } } }",
        json!({ "__schema": { "queryType": { "name": "Query" } }, "olmpackages": [{ "name": "db" }] }),
    )
    .await;
}

#[tokio::test]
async fn graphql_takes_variables_and_names_of_operations() {
    let running = started().await;
    let query = "query A($name: String!, $limit: Int = 1) { olmbundles(filter: {name: $name}, limit: $limit) { image } } query B { olmpackages { name } }";
    let question = |operation: &str, variables: Value| json!({ "query": query, "operationName": operation, "variables": variables });
    assert_eq!(
        ask(&running, question("A", json!({ "name": "db.v2" }))).await,
        json!({ "data": { "olmbundles": [{ "image": "r/db:2" }] } })
    );
    assert_eq!(
        ask(&running, question("B", Value::Null)).await,
        json!({ "data": { "olmpackages": [{ "name": "db" }] } })
    );
    // An absent variable does not filter.
    let optional = "query ($name: String, $package: String, $image: String) \
                 { olmbundles(filter: {name: $name, package: $package, image: $image}) { image } }";
    for (variables, expected) in [
        (json!({ "name": "db.v2" }), json!([{ "image": "r/db:2" }])),
        (
            json!({ "name": "db.v2", "package": null }),
            json!([{ "image": "r/db:2" }]),
        ),
        (json!({ "image": "r/db:1" }), json!([{ "image": "r/db:1" }])),
        (json!({}), json!([{ "image": "r/db:1" }, { "image": "r/db:2" }])),
    ] {
        assert_eq!(
            ask(&running, json!({ "query": optional, "variables": variables })).await,
            json!({ "data": { "olmbundles": expected } })
        );
    }
    for (question, message) in [
        (question("A", json!({})), "name"),
        (question("A", json!({ "name": 5 })), "name"),
        (question("C", json!({})), "No operation named 'C'"),
        (
            json!({ "query": query }),
            "Ambiguous request: multiple operations but no specified `operationName`",
        ),
    ] {
        let answer = ask(&running, question).await;
        assert_eq!(answer["data"], Value::Null);
        let text = answer["errors"][0]["message"].as_str().unwrap();
        assert!(text.contains(message), "{text}");
    }
}

#[tokio::test]
async fn graphql_names_what_is_wrong_with_a_query() {
    let running = started().await;
    let check = async |query: &str, message: &str, locations: Value| {
        let answer = ask(&running, json!({ "query": query })).await;
        assert_eq!(answer["data"], Value::Null, "{query}");
        let error = &answer["errors"][0];
        let text = error["message"].as_str().unwrap();
        assert!(text.starts_with(message), "{query}: {text}");
        assert_eq!(error["locations"], locations, "{query}");
    };
    check(
        "{ nope }",
        "Cannot query field \"nope\" on type \"Query\".",
        json!([{ "line": 1, "column": 3 }]),
    )
    .await;
    check(
        "{",
        "query parse error: syntax error: expected",
        json!([{ "line": 1, "column": 2 }]),
    )
    .await;
    check(
        &"{a".repeat(100),
        "query parse error: parser recursion limit reached",
        json!([{ "line": 1, "column": 130 }]),
    )
    .await;
    check(
        &("{a".repeat(11) + &"}".repeat(11)),
        "query exceeds maximum depth of 10",
        json!([]),
    )
    .await;
    check(
        "{ __schema { types { fields { type { fields { type { fields { name } } } } } } } }",
        "Maximum introspection depth exceeded",
        json!([{ "line": 1, "column": 54 }]),
    )
    .await;
    check(
        "{ ...F } fragment F on Query { ...F }",
        "Cannot spread fragment",
        json!([{ "line": 1, "column": 10 }]),
    )
    .await;
}

#[tokio::test]
async fn requests_that_are_no_questions_are_refused_in_known_words() {
    let running = started().await;
    let long = json!({ "query": " ".repeat(100_001) }).to_string();
    for (body, text) in [
        ("nope", "Invalid request body\n"),
        ("", "Invalid request body\n"),
        ("{\"query\":5}", "Invalid request body\n"),
        ("{}", "Query cannot be empty\n"),
        ("null", "Query cannot be empty\n"),
        ("{\"query\":\"\"}", "Query cannot be empty\n"),
        (long.as_str(), "Query too large\n"),
    ] {
        let answer = post(running.address, GRAPHQL, "", body).await;
        assert_eq!(
            (answer.status, String::from_utf8(answer.body).unwrap().as_str()),
            (400, text)
        );
    }
    let get = request(running.address, "GET", GRAPHQL, "").await;
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
}

#[tokio::test]
async fn an_answer_has_a_largest_size() {
    let running = start(Limits::default()).await;
    let line = format!("{{\"name\":\"a\",\"text\":\"{}\"}}", "x".repeat(1 << 20));
    put(&running.store, "cat", [("s", "", "a", line.as_str())]);
    let fields = (0..45).fold(String::new(), |fields, n| format!("{fields} f{n}: text"));
    let answer = ask(&running, json!({ "query": format!("{{ ss {{ {fields} }} }}") })).await;
    let text = answer["errors"][0]["message"].as_str().unwrap();
    assert!(text.starts_with("the answer is too large"), "{text}");
}

#[tokio::test]
async fn catalogs_are_listed_with_priority_digest_and_counts() {
    let running = started().await;
    running.store.announce("later");
    let answer = request(running.address, "GET", "/catalogs", "").await;
    let list: Value = serde_json::from_slice(&answer.body).unwrap();
    let [cat, later, new] = list["catalogs"].as_array().unwrap().as_slice() else {
        panic!("three catalogs: {list}");
    };
    assert_eq!(
        (
            &cat["name"],
            &cat["priority"],
            &cat["ready"],
            &cat["packages"],
            &cat["bundles"]
        ),
        (&json!("cat"), &json!(7), &json!(true), &json!(1), &json!(2))
    );
    let digest = running.store.snapshot("cat").unwrap().record().digest.clone();
    assert_eq!(cat["digest"], format!("sha256:{digest}"));
    assert_eq!(
        later,
        &json!({ "name": "later", "priority": 0, "ready": false, "path": "/catalogs/later" })
    );
    assert_eq!((&new["name"], &new["ready"]), (&json!("new"), &json!(false)));
    let tag = format!("If-None-Match: {}\r\n", answer.header("etag").unwrap());
    assert_eq!(
        request(running.address, "GET", "/catalogs", &tag).await.status,
        304
    );
}

#[tokio::test]
async fn packages_of_all_catalogs_are_found() {
    let running = started().await;
    put(
        &running.store,
        "other",
        [(
            "olm.package",
            "",
            "db-extra",
            r#"{"defaultChannel":"c","description":"x","name":"db-extra","schema":"olm.package"}"#,
        )],
    );
    let find = async |query: &str| -> Vec<String> {
        let answer = request(running.address, "GET", &format!("/api/v1/search{query}"), "").await;
        assert_eq!(answer.status, 200, "{query}");
        let finds: Value = serde_json::from_slice(&answer.body).unwrap();
        let item = |item: &Value| {
            format!(
                "{}/{}",
                item["catalog"].as_str().unwrap(),
                item["name"].as_str().unwrap()
            )
        };
        finds["items"].as_array().unwrap().iter().map(item).collect()
    };
    assert_eq!(find("").await, ["cat/db", "other/db-extra"]);
    assert_eq!(find("?q=DB").await, ["cat/db", "other/db-extra"]);
    assert_eq!(find("?q=extra").await, ["other/db-extra"]);
    assert_eq!(find("?api=Database.db.io").await, ["cat/db"]);
    assert_eq!(find("?catalog=other&q=db").await, ["other/db-extra"]);
    assert_eq!(find("?limit=1").await, ["cat/db"]);
    assert_eq!(find("?limit=1&cursor=1").await, ["other/db-extra"]);
    assert!(find("?q=nothing").await.is_empty());
}

#[tokio::test]
async fn refusals_are_problems_where_that_is_asked_for_and_always_of_ours() {
    let running = start(Limits::default()).await;
    fill(&running.store, 1);
    let check = async |path: &str, headers: &str, expected: (u16, &str)| {
        let answer = request(running.address, "GET", path, headers).await;
        assert_eq!(
            (answer.status, answer.header("content-type").unwrap()),
            expected,
            "{path}"
        );
        if expected.1.ends_with("json") {
            let problem: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(problem["status"], answer.status);
            assert!(!problem["detail"].as_str().unwrap().is_empty());
        }
        // Caches must know that the answer depends on `Accept`.
        let varies = answer.head.contains("vary: Accept\r\n");
        assert_eq!(
            varies,
            headers.contains("problem+json"),
            "{path}: {}",
            answer.head
        );
    };
    let (plain, problem) = ("text/plain; charset=utf-8", "application/problem+json");
    let asked = "Accept: application/problem+json\r\n";
    for (path, status) in [
        ("/catalogs/none/api/v1/all", 404),
        ("/catalogs/NONE/api/v1/all", 400),
        ("/catalogs/cat/api/v1/metas?x=1", 400),
        ("/catalogs/cat/api/v1/graphql", 405),
        ("/nothing", 404),
    ] {
        check(path, "", (status, plain)).await;
        check(path, "Accept: */*\r\n", (status, plain)).await;
        check(path, asked, (status, problem)).await;
    }
    check("/api/v1/search?x=1", "", (400, problem)).await;
    // A precondition that fails: the answer is empty unless the client requests a problem.
    let other = "If-Match: \"other\"\r\n";
    for path in ["/catalogs/cat/api/v1/all", "/catalogs/cat/api/v1/metas"] {
        let answer = request(running.address, "GET", path, other).await;
        assert_eq!(
            (answer.status, answer.header("content-type"), answer.body.len()),
            (412, Some("application/jsonl"), 0)
        );
        check(path, &format!("{other}{asked}"), (412, problem)).await;
    }
}

#[tokio::test]
async fn head_announces_what_get_sends() {
    let running = started().await;
    for path in [
        "/catalogs",
        "/api/v1/search",
        "/api/v1/search?q=db&limit=1",
        "/openapi.json",
        "/schemas/fbc.json",
        "/catalogs/cat/api/v1/metas?package=db",
    ] {
        for coding in ["", "Accept-Encoding: gzip\r\n", "Accept-Encoding: zstd\r\n"] {
            let get = request(running.address, "GET", path, coding).await;
            let head = request(running.address, "HEAD", path, coding).await;
            assert_eq!(
                (get.status, head.status, head.body.len()),
                (200, 200, 0),
                "{path}"
            );
            for name in ["content-type", "content-encoding", "content-length", "etag"] {
                assert_eq!(head.header(name), get.header(name), "{path}: {name}");
            }
            assert_eq!(
                head.header("content-length"),
                Some(get.body.len().to_string().as_str()),
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn an_unknown_parameter_is_named_wherever_that_is_allowed() {
    let running = start(Limits::default()).await;
    fill(&running.store, 1);
    let asked = "Accept: application/problem+json\r\n";
    for (path, headers, part) in [
        (
            "/catalogs/cat/api/v1/metas?schma=x",
            asked,
            "`schma`, did you mean `schema`?",
        ),
        ("/api/v1/search?x=1", "", "There are `q`, `name`, `keyword`"),
        ("/catalogs/cat/api/v1/metas?schma=x", "", "400 Bad Request\n"),
        ("/catalogs/cat/api/v1/metas?limit=0", asked, "from 1 to 10000"),
        ("/catalogs/cat/api/v1/metas?cursor=x", "", "400 Bad Request\n"),
        ("/catalogs/cat/api/v1/metas?schema=%zz", "", "400 Bad Request\n"),
        ("/api/v1/search?q=%zz", "", "not well encoded"),
    ] {
        let answer = request(running.address, "GET", path, headers).await;
        assert_eq!(answer.status, 400, "{path}");
        assert_eq!(
            answer.header("link"),
            Some("</openapi.json>; rel=\"service-desc\""),
            "{path}"
        );
        let text = String::from_utf8(answer.body).unwrap();
        assert!(text.contains(part), "{path}: {text}");
    }
    let answer = request(running.address, "GET", "/openapi.json", "").await;
    assert_eq!(answer.status, 200);
    let api: Value = serde_json::from_slice(&answer.body).unwrap();
    for path in ["/catalogs/{catalog}/api/v1/metas", "/api/v1/search"] {
        for method in ["get", "head"] {
            let described = &api["paths"][path][method]["responses"]["400"]["headers"]["Link"];
            assert_eq!(
                described["$ref"], "#/components/headers/Description",
                "{path} {method}"
            );
        }
    }
    let description = &api["components"]["headers"]["Description"]["description"];
    assert!(
        description
            .as_str()
            .unwrap()
            .contains("</openapi.json>; rel=\"service-desc\"")
    );
}

#[tokio::test]
async fn the_descriptions_are_json_and_name_every_path() {
    let running = start(Limits::default()).await;
    let get = async |path: &str| -> Value {
        let answer = request(running.address, "GET", path, "").await;
        assert_eq!(answer.status, 200, "{path}");
        serde_json::from_slice(&answer.body).unwrap()
    };
    let api = get("/openapi.json").await;
    for path in [
        "/catalogs",
        "/catalogs/{catalog}/api/v1/all",
        "/catalogs/{catalog}/api/v1/metas",
        "/catalogs/{catalog}/api/v1/graphql",
        "/api/v1/search",
        "/openapi.json",
        "/schemas/fbc.json",
    ] {
        assert!(api["paths"].get(path).is_some(), "{path}");
    }
}

use super::*;

fn variable(id: &str, rules: Vec<Rule>) -> Variable {
    let constraints = rules.into_iter().enumerate().map(|(index, rule)| Constraint {
        rule,
        text: format!("{id} {index}"),
    });
    Variable {
        id: id.to_owned(),
        constraints: constraints.collect(),
    }
}

fn needs(ids: &[&str]) -> Rule {
    Rule::Dependency(ids.iter().map(|id| (*id).to_owned()).collect())
}

#[test]
fn a_dead_end_far_from_the_first_choice_does_not_try_all_combinations() {
    let mut variables = Vec::new();
    for index in 0..60 {
        let (one, other) = (format!("x{index}"), format!("y{index}"));
        let id = format!("a{index:02}");
        variables.push(variable(&id, vec![Rule::Mandatory, needs(&[&one, &other])]));
        variables.push(variable(&one, vec![]));
        variables.push(variable(&other, vec![]));
    }
    variables.push(variable("z", vec![Rule::Mandatory, needs(&["w"])]));
    variables.push(variable("w", vec![Rule::Prohibited]));
    let texts = ["w 0", "z 0", "z 1"].map(str::to_owned).to_vec();
    assert_eq!(solve(&variables), Err(SolveError::NotSatisfiable(texts)));
}

/// Small problems against all sets of variables: there is a solution if and only if one is found, and it is one.
#[test]
fn a_solution_is_found_if_there_is_one() {
    let ids = ["a", "b", "c", "d", "e"];
    let mut state = 7_u64;
    let mut next = |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for _ in 0..3000 {
        let mut variables = Vec::new();
        for id in ids {
            let mut rules = Vec::new();
            for _ in 0..next(4) {
                let named: Vec<&str> = ids.into_iter().filter(|_| next(2) == 0).collect();
                rules.push(match next(9) {
                    0 | 1 => Rule::Mandatory,
                    2 => Rule::Prohibited,
                    3 => Rule::AtMost(1, named.iter().map(|name| (*name).to_owned()).collect()),
                    4 => match named.first() {
                        Some(other) if *other != id => Rule::Conflict((*other).to_owned()),
                        _ => continue,
                    },
                    _ => needs(&named),
                });
            }
            variables.push(variable(id, rules));
        }
        let holds = |set: &BTreeSet<&str>| {
            variables.iter().all(|variable| {
                let is_in = set.contains(variable.id.as_str());
                variable
                    .constraints
                    .iter()
                    .all(|constraint| match &constraint.rule {
                        Rule::Mandatory => is_in,
                        Rule::Prohibited => !is_in,
                        Rule::Dependency(named) => {
                            !is_in || named.iter().any(|name| set.contains(name.as_str()))
                        }
                        Rule::Conflict(other) => !is_in || !set.contains(other.as_str()),
                        Rule::AtMost(most, named) => {
                            let named: BTreeSet<&String> = named.iter().collect();
                            named
                                .into_iter()
                                .filter(|name| set.contains(name.as_str()))
                                .count()
                                <= *most
                        }
                    })
            })
        };
        let sets = (0_u32..32).map(|bits| {
            let members = ids.into_iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
            members.map(|(_, id)| id).collect::<BTreeSet<&str>>()
        });
        match solve(&variables) {
            Ok(found) => assert!(
                holds(&found.iter().map(String::as_str).collect()),
                "{variables:?} {found:?}"
            ),
            Err(_) => assert!(!sets.into_iter().any(|set| holds(&set)), "{variables:?}"),
        }
    }
}

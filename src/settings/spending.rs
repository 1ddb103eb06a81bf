//! The part of the settings that is about money: budgets, and what models cost.
//!
//! Each limit is looked for by itself, and each model's price: a folder may set one and leave the others
//! to the user's own file. A limit only restricts, so a folder's acts without trust; but it raises none of
//! the user's own, and says of no model that it costs something else, before the folder is trusted.

use super::environment::Environment;
use super::model::ModelChoice;
use super::trust::Risks;
use super::{Layer, Setting, Source, number, pick, variable};
use crate::error::{Exit, Failure};
use crate::wire::budget::{Budget, Budgets};
use crate::wire::money::{Money, Price};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::str::FromStr;

/// Key, value and source of one setting.
pub(crate) type Row = (String, String, String);

/// Budgets and prices in force.
#[derive(Debug, Clone)]
pub(crate) struct Spending {
    team: Limits,
    member: Limits,
    prices: BTreeMap<String, Setting<Price>>,
}

/// One budget, each limit with its source.
#[derive(Debug, Clone)]
struct Limits {
    tokens: Setting<Option<u64>>,
    money: Setting<Option<Money>>,
    turns: Setting<Option<u64>>,
    minutes: Setting<Option<u64>>,
}

/// The keys of a budget.
struct Keys {
    tokens: &'static str,
    money: &'static str,
    turns: &'static str,
    minutes: &'static str,
}

const TEAM: Keys = Keys {
    tokens: "budget.team.tokens",
    money: "budget.team.money",
    turns: "budget.team.turns",
    minutes: "budget.team.minutes",
};

const MEMBER: Keys = Keys {
    tokens: "budget.member.tokens",
    money: "budget.member.money",
    turns: "budget.member.turns",
    minutes: "budget.member.minutes",
};

impl Spending {
    pub(super) fn of(layers: &[(Source, Layer)]) -> Self {
        let mut prices = BTreeMap::new();
        for (source, layer) in layers {
            for (model, price) in layer.prices.iter().flatten() {
                let setting = || Setting { value: *price, source: source.clone() };
                prices.entry(model.clone()).or_insert_with(setting);
            }
        }
        Self {
            team: Limits::of(layers, &TEAM, |budgets| budgets.team),
            member: Limits::of(layers, &MEMBER, |budgets| budgets.member),
            prices,
        }
    }

    /// The budgets.
    pub(crate) fn budgets(&self) -> Budgets {
        Budgets { team: self.team.budget(), member: self.member.budget() }
    }

    /// What the models cost, by `provider/name`.
    pub(crate) fn prices(&self) -> BTreeMap<String, Price> {
        self.prices.iter().map(|(model, setting)| (model.clone(), setting.value)).collect()
    }

    /// For `team config`.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let prices = self.prices.iter().map(|(model, Setting { value, source })| {
            let shown = format!("{} in, {} out", value.input, value.output);
            (format!("prices.{model}"), shown, source.to_string())
        });
        let limits = self.team.rows(&TEAM).into_iter().chain(self.member.rows(&MEMBER));
        limits.chain(prices).collect()
    }
}

impl Limits {
    fn of(layers: &[(Source, Layer)], keys: &Keys, part: fn(&Budgets) -> Budget) -> Self {
        let budget = |layer: &Layer| layer.budget.as_ref().map(part).unwrap_or_default();
        Self {
            tokens: pick(layers, keys.tokens, |layer| budget(layer).tokens.map(Some), None),
            money: pick(layers, keys.money, |layer| budget(layer).money.map(Some), None),
            turns: pick(layers, keys.turns, |layer| budget(layer).turns.map(Some), None),
            minutes: pick(layers, keys.minutes, |layer| budget(layer).minutes.map(Some), None),
        }
    }

    fn budget(&self) -> Budget {
        Budget {
            tokens: self.tokens.value,
            money: self.money.value,
            turns: self.turns.value,
            minutes: self.minutes.value,
        }
    }

    fn rows(&self, keys: &Keys) -> [Row; 4] {
        fn row<T: ToString>(key: &str, setting: &Setting<Option<T>>) -> Row {
            let shown = setting.value.as_ref().map_or_else(|| "(none)".into(), T::to_string);
            (key.into(), shown, setting.source.to_string())
        }
        [
            row(keys.tokens, &self.tokens),
            row(keys.money, &self.money),
            row(keys.turns, &self.turns),
            row(keys.minutes, &self.minutes),
        ]
    }
}

/// All that a folder says about money.
pub(super) fn risks(layer: &Layer) -> Risks {
    let nothing = Some(0);
    let money = Some(Money::default());
    let nothing = Budget { tokens: nothing, money, turns: nothing, minutes: nothing };
    let mut budgets = layer.budget.unwrap_or_default();
    let mut risks = lowered(&mut budgets, &Budgets { team: nothing, member: nothing });
    for (model, price) in layer.prices.iter().flatten() {
        risks.insert(format!("prices.{model}"), json!(price));
    }
    risks
}

/// Takes out of a folder's settings what raises a limit of the user's own, or changes a price; gives that.
pub(super) fn strip_untrusted(layer: &mut Layer, own: &Spending) -> Risks {
    let mut taken = Risks::new();
    if let Some(budgets) = &mut layer.budget {
        taken = lowered(budgets, &own.budgets());
    }
    let known = own.prices();
    if let Some(prices) = &mut layer.prices {
        prices.retain(|model, price| {
            let same = known.get(model).is_none_or(|own| own == price);
            if !same {
                taken.insert(format!("prices.{model}"), json!(price));
            }
            same
        });
    }
    taken
}

/// Takes out every limit that is above one of `own`.
fn lowered(budgets: &mut Budgets, own: &Budgets) -> Risks {
    fn lower<T: PartialOrd + Serialize>(
        key: &str,
        limit: &mut Option<T>,
        own: Option<T>,
        taken: &mut Risks,
    ) {
        if let Some(high) = limit.take_if(|limit| own.is_some_and(|own| *limit > own)) {
            taken.insert(key.into(), json!(high));
        }
    }
    let mut taken = Risks::new();
    for (keys, limits, own) in
        [(&TEAM, &mut budgets.team, own.team), (&MEMBER, &mut budgets.member, own.member)]
    {
        lower(keys.tokens, &mut limits.tokens, own.tokens, &mut taken);
        lower(keys.money, &mut limits.money, own.money, &mut taken);
        lower(keys.turns, &mut limits.turns, own.turns, &mut taken);
        lower(keys.minutes, &mut limits.minutes, own.minutes, &mut taken);
    }
    taken
}

/// The budgets that the environment sets.
pub(super) fn from_environment(environment: &Environment) -> Result<Option<Budgets>, Failure> {
    let budget = |keys: &Keys| -> Result<Budget, Failure> {
        Ok(Budget {
            tokens: number(environment, keys.tokens)?,
            money: money(environment, keys.money)?,
            turns: number(environment, keys.turns)?,
            minutes: number(environment, keys.minutes)?,
        })
    };
    Ok(Some(Budgets { team: budget(&TEAM)?, member: budget(&MEMBER)? }))
}

fn money(environment: &Environment, key: &str) -> Result<Option<Money>, Failure> {
    let name = variable(key);
    let Some(text) = environment.get(&name) else { return Ok(None) };
    let number = f64::from_str(text.trim()).ok();
    number.and_then(|number| Money::try_from(number).ok()).map(Some).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            format!("{name} is not usable"),
            format!("{text:?} is no amount of money"),
            format!("set {name} to a number such as 2.50, or unset it"),
        )
    })
}

/// What a model costs, if that is known. A budget in money cannot be kept without it.
///
/// # Errors
/// Money is limited and nobody has said what this model costs.
pub(crate) fn price_of(
    model: &ModelChoice,
    price: Option<Price>,
    budgets: &Budgets,
) -> Result<Option<Price>, Failure> {
    if price.is_none() && budgets.limit_money() && model.is_paid() {
        return Err(Failure::new(
            Exit::Usage,
            format!("nobody has said what {model} costs"),
            "there is a budget in money, which cannot be kept without prices",
            format!(
                "set input and output for a million tokens under [prices.\"{model}\"] in the settings"
            ),
        ));
    }
    Ok(price)
}

#[cfg(test)]
mod tests {
    use super::super::permissions::tests::load_both;
    use super::super::tests::load;
    use super::*;

    #[test]
    fn each_limit_and_each_price_is_looked_for_by_itself() {
        let file = "[budget.team]\ntokens = 1000\nmoney = 2.5\n\
             [prices.\"anthropic/m\"]\ninput = 3\noutput = 15.0\ncache_read = 0.3\n";
        let variables = [("TEAM_BUDGET_TEAM_TOKENS", "7"), ("TEAM_BUDGET_MEMBER_MONEY", "0.5")];
        let spending = load(&variables, file).unwrap().spending;
        let money = |number: f64| Money::try_from(number).ok();
        let Budgets { team, member } = spending.budgets();
        assert_eq!(team, Budget { tokens: Some(7), money: money(2.5), ..Budget::default() });
        assert_eq!(member, Budget { money: money(0.5), ..Budget::default() });
        assert_eq!(spending.prices()["anthropic/m"].cache_read, money(0.3));
        let rows = spending.rows();
        let row = |key: &str| rows.iter().find(|row| row.0 == key).unwrap().clone();
        assert_eq!(row("budget.team.tokens").2, "environment (TEAM_BUDGET_TEAM_TOKENS)");
        assert_eq!(row("budget.member.turns").1, "(none)");
        assert_eq!(row("prices.anthropic/m").1, "3.00 in, 15.00 out");
    }

    /// A clone may bring a smaller budget along, and none that is larger than the user's.
    #[test]
    fn a_folder_raises_no_limit_before_it_is_trusted() {
        let folder = "[budget.team]\ntokens = 9000\nturns = 5\n[budget.member]\nmoney = 8.0\n\
             [prices.\"m\"]\ninput = 0.1\noutput = 0.1\n[prices.\"n\"]\ninput = 1\noutput = 1\n";
        let own = "[budget.team]\ntokens = 1000\nturns = 50\n[budget.member]\nmoney = 0.5\n\
             [prices.\"m\"]\ninput = 3\noutput = 15\n";
        let money = |number: f64| Money::try_from(number).ok();
        let settings = load_both(folder, own, &[], None);
        let Budgets { team, member } = settings.spending.budgets();
        assert_eq!((team.tokens, team.turns, member.money), (Some(1000), Some(5), money(0.5)));
        let prices = settings.spending.prices();
        assert_eq!((Some(prices["m"].input), Some(prices["n"].input)), (money(3.0), money(1.0)));
        let told = settings.ignored.unwrap();
        for raised in ["budget.team.tokens = 9000", "budget.member.money = 8.0", "prices.m = "] {
            assert!(told.contains(raised), "{told}");
        }
        assert!(!told.contains("turns") && !told.contains("prices.n"), "{told}");

        let settings = load_both(folder, own, &["work/.team"], None);
        let Budgets { team, member } = settings.spending.budgets();
        assert_eq!((team.tokens, team.turns, member.money), (Some(9000), Some(5), money(8.0)));
        assert_eq!(
            (Some(settings.spending.prices()["m"].input), settings.ignored),
            (money(0.1), None)
        );
        let alone = load_both(folder, "", &[], None);
        assert_eq!((alone.spending.budgets().team.tokens, alone.ignored), (Some(9000), None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for file in [
            "[budget]\ntokens = 5",
            "[budget.team]\ntokens = -5",
            "[budget.team]\nmoney = -0.5",
            "[budget.member]\nturns = 0",
            "[prices.\"m\"]\ninput = 3",
        ] {
            assert_eq!(load(&[], file).unwrap_err().exit, Exit::Usage, "{file}");
        }
        assert!(load(&[("TEAM_BUDGET_TEAM_MONEY", "much")], "").is_err());
    }

    #[test]
    fn a_budget_in_money_needs_the_price_of_a_model_that_is_paid() {
        let paid = ModelChoice::parse("anthropic/m").unwrap();
        let money = Budget { money: Money::try_from(1.0).ok(), ..Budget::default() };
        let budgets = Budgets { member: money, ..Budgets::default() };
        let failure = price_of(&paid, None, &budgets).unwrap_err();
        assert!(failure.hint.contains("[prices.\"anthropic/m\"]"), "{failure}");
        assert_eq!(price_of(&paid, None, &Budgets::default()), Ok(None));
        assert_eq!(price_of(&ModelChoice::fallback(), None, &budgets), Ok(None));
    }
}

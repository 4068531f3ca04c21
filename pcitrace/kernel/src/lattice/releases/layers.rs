//! The layers of the search: where its ways are before each item, and what they cost.

use super::Limits;
use std::ops::Range;

/// The last step of a way: from which node of the layer before, over how many items; how many targets it released, 0 if
/// it left its item over.
#[derive(Clone, Copy, Default)]
pub(super) struct Step(u64);

impl Step {
    pub(super) fn new(from: usize, items: usize, count: usize) -> Self {
        Self((from << 32 | items << 16 | count) as u64)
    }

    pub(super) fn from(self) -> usize {
        (self.0 >> 32) as usize
    }

    pub(super) fn items(self) -> usize {
        (self.0 >> 16) as usize & 0xFFFF
    }

    pub(super) fn count(self) -> usize {
        self.0 as usize & 0xFFFF
    }

    /// The same step, if it released so many targets more.
    pub(super) fn with_more(self, targets: usize) -> Self {
        Self(self.0 + targets as u64)
    }
}

/// So many targets were dealt with; the cheapest way here.
#[derive(Clone, Copy)]
pub(super) struct Node {
    pub(super) dealt: u32,
    pub(super) cost: f64,
    pub(super) step: Step,
}

/// What is kept of the items that one segment may have: a power of two, for what is kept of an item lies by the last
/// bits of its number.
pub(super) struct Ring<T>(pub(super) Vec<T>);

impl<T> Ring<T> {
    pub(super) fn new(longest: usize, new: impl Fn() -> T) -> Self {
        Self(std::iter::repeat_with(new).take((longest + 1).next_power_of_two().max(2)).collect())
    }

    pub(super) fn at(&mut self, item: usize) -> &mut T {
        let last = self.0.len() - 1;
        &mut self.0[item & last]
    }
}

/// A layer that steps still lead to: by targets that were dealt with, the cheapest way there.
pub(super) struct Open {
    cost: Vec<f64>,
    step: Vec<Step>,
    /// Where costs are written.
    used: Range<usize>,
    /// What the best way costs, with what is left at the least.
    pub(super) least: f64,
}

impl Open {
    pub(super) fn new(targets: usize) -> Self {
        let cost = vec![f64::INFINITY; targets + 1];
        Self { step: vec![Step::default(); cost.len()], cost, used: 0..0, least: f64::INFINITY }
    }

    /// Comes here on ways that differ in how many targets they released: what each costs, and its step.
    pub(super) fn arrive(&mut self, dealt: usize, costs: &[f64], before: f64, step: Step, ahead: &[f64]) {
        if costs.is_empty() {
            return;
        }
        let places = dealt..dealt + costs.len();
        let known =
            self.cost[places.clone()].iter_mut().zip(&mut self.step[places.clone()]).zip(&ahead[places.clone()]);
        let mut least = self.least;
        for (more, (cost, ((known, way), ahead))) in (0..).zip(costs.iter().zip(known)) {
            let cost = before + cost;
            // Without a branch: which one is better is hard to foresee.
            let (better, new, whole) = (cost < *known, step.with_more(more), cost + ahead);
            *known = if better { cost } else { *known };
            *way = if better { new } else { *way };
            least = if whole < least { whole } else { least };
        }
        self.least = least;
        let used = if self.used.is_empty() { places.clone() } else { self.used.clone() };
        self.used = used.start.min(places.start)..used.end.max(places.end);
    }

    /// Its nodes, the best of them only; it is empty then.
    pub(super) fn close(&mut self, ahead: &[f64], limits: &Limits) -> Vec<Node> {
        let used = std::mem::take(&mut self.used);
        let most = std::mem::replace(&mut self.least, f64::INFINITY) + limits.cost;
        let whole = |node: &Node| node.cost + ahead[node.dealt as usize];
        let nodes =
            used.clone().map(|dealt| Node { dealt: dealt as u32, cost: self.cost[dealt], step: self.step[dealt] });
        let mut nodes: Vec<Node> = nodes.filter(|node| node.cost.is_finite() && whole(node) <= most).collect();
        self.cost[used].fill(f64::INFINITY);
        // The best goes on first: what the others would come to is known as too much sooner.
        nodes.sort_by(|a, b| whole(a).total_cmp(&whole(b)));
        nodes.truncate(limits.nodes);
        nodes
    }
}

/// What the best ways from a layer have left to pay: by targets that are dealt with.
pub(super) struct Behind {
    pub(super) cost: Vec<f64>,
    /// How much more than what is left at the least.
    pub(super) least: f64,
}

impl Behind {
    pub(super) fn new(targets: usize) -> Self {
        Self { cost: vec![f64::INFINITY; targets + 1], least: f64::INFINITY }
    }

    pub(super) fn put(&mut self, node: &Node, cost: f64, ahead: &[f64]) {
        self.cost[node.dealt as usize] = cost;
        self.least = self.least.min(cost - ahead[node.dealt as usize]);
    }

    pub(super) fn clear(&mut self, nodes: &[Node]) {
        nodes.iter().for_each(|node| self.cost[node.dealt as usize] = f64::INFINITY);
        self.least = f64::INFINITY;
    }
}

//! How sure the best reading is of each target and each item.

use super::layers::Node;
use super::{NONE, Released, Search};
use std::ops::Range;

/// How much worse the best way is on which anything differs from the best one.
pub(super) struct Margins {
    pub(super) out: Released,
    /// For each item the first target of its segment on the best way.
    mine: Vec<u32>,
    /// No margin is larger.
    cap: f32,
}

impl Margins {
    pub(super) fn new(search: &Search, cost: f64) -> Self {
        let (items, targets) = (search.items.time_us.len(), search.targets.time_us.len());
        let cap = if search.limits.margins { search.limits.cost as f32 } else { 0.0 };
        let out = Released {
            first: vec![NONE; targets],
            last: vec![NONE; targets],
            margins: vec![[cap; 2]; targets],
            item: vec![cap; items],
            cost,
        };
        Self { out, mine: vec![NONE; items], cap }
    }

    /// Writes down the best way.
    pub(super) fn best(&mut self, search: &Search, end: &Node) {
        let (mut to, mut node) = (self.mine.len(), end);
        while to > 0 {
            let at = to - node.step.items();
            let before = &search.layers[at][node.step.from()];
            let dealt = before.dealt as usize;
            for target in dealt..dealt + node.step.count() {
                self.out.first[target] = at as u32;
                self.out.last[target] = to as u32 - 1;
            }
            if node.step.count() > 0 {
                self.mine[at..to].fill(before.dealt);
            }
            (to, node) = (at, before);
        }
    }

    /// Takes notice of the ways on which an item of a node is left over; what the best of them has left to pay.
    pub(super) fn left_over(&mut self, search: &Search, at: usize, node: &Node, other: f64, behind: &[f64]) -> f64 {
        let (dealt, passed) = (node.dealt as usize, search.passed[at + 1]);
        let after = dealt.max(passed);
        let cost = other + search.skipped[after] - search.skipped[dealt] + behind[after];
        let more = self.more(node, cost);
        self.skips(dealt..after, more);
        if self.mine[at] != NONE {
            self.out.item[at] = self.out.item[at].min(more);
        }
        cost
    }

    /// Takes notice of the ways with a segment, whose costs by targets become those of all that is left to pay; what the
    /// best of them has left to pay.
    pub(super) fn segment(
        &mut self,
        search: &Search,
        at: usize,
        length: usize,
        node: &Node,
        costs: &mut [f64],
        behind: &[f64],
    ) -> f64 {
        let (dealt, last, passed) = (node.dealt as usize, at + length - 1, search.passed[at + length]);
        let few = passed.saturating_sub(dealt + 1).min(costs.len());
        for (released, cost) in (dealt + 1..).zip(&mut costs[..few]) {
            *cost += search.skipped[passed] - search.skipped[released] + behind[passed];
            self.skips(released..passed, self.more(node, *cost));
        }
        costs[few..].iter_mut().zip(&behind[dealt + 1 + few..]).for_each(|(cost, behind)| *cost += behind);
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let more = self.more(node, least);
        if more >= self.cap {
            return least;
        }
        let mut rest = f64::INFINITY;
        for (target, cost) in (dealt..dealt + costs.len()).zip(costs).rev() {
            rest = rest.min(*cost);
            self.differs(target, at as u32, last as u32, self.more(node, rest));
        }
        for item in at..=last {
            if self.mine[item] != node.dealt {
                self.out.item[item] = self.out.item[item].min(more);
            }
        }
        least
    }

    /// How much worse than the best way one is, of which so much is left to pay behind a node.
    fn more(&self, node: &Node, cost: f64) -> f32 {
        (node.cost + cost - self.out.cost).max(0.0) as f32
    }

    fn skips(&mut self, targets: Range<usize>, more: f32) {
        targets.for_each(|target| self.differs(target, NONE, NONE, more));
    }

    fn differs(&mut self, target: usize, first: u32, last: u32, more: f32) {
        let [at_first, at_last] = &mut self.out.margins[target];
        if self.out.first[target] != first {
            *at_first = at_first.min(more);
        }
        if self.out.last[target] != last {
            *at_last = at_last.min(more);
        }
    }

    /// The targets that were released before the first item, on ways that begin with more of them than the best.
    pub(super) fn started(&mut self, layer: &[Node], behind: &[f64]) {
        for node in layer {
            let more = self.more(node, behind[node.dealt as usize]);
            for target in 0..node.dealt as usize {
                if self.out.last[target] != NONE {
                    self.out.margins[target] = self.out.margins[target].map(|margin| margin.min(more));
                }
            }
        }
    }
}

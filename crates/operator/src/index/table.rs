//! What an index says of each record: a value, whether it is a member, and its rank.

/// Marks a record without a rank.
const UNRANKED: u32 = u32::MAX;

/// The values of one index by the position of the record.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// One column per class of a classifier; one in all else.
    columns: Vec<Column>,
    /// Of a classifier: how far the leading class is ahead, in parts per million.
    margins: Vec<Option<u32>>,
}

#[derive(Debug, Clone, Default)]
struct Column {
    entries: Vec<Entry>,
    members: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    value: Option<i64>,
    rank: u32,
    member: bool,
}

impl Table {
    /// A table of members with a value, by position; `top` keeps only the best as members.
    ///
    /// Ranks go from the largest value to the smallest, ties by position; only members that have a value
    /// are ranked.
    pub(super) fn of_members(
        records: u32,
        rows: impl IntoIterator<Item = (u32, Option<i64>, bool)>,
        top: Option<u32>,
    ) -> Self {
        Self {
            columns: vec![Column::new(records, rows, top)],
            margins: Vec::new(),
        }
    }

    /// A table of classes: for each record that is judged, the leading class, its margin, and the
    /// probability of every class in parts per million.
    pub(super) fn of_classes(
        records: u32,
        classes: usize,
        judged: &[(u32, u32, u32, Vec<u32>)],
    ) -> Self {
        let columns = (0..classes)
            .map(|class| {
                let rows = judged.iter().map(|(ordinal, _, _, shares)| {
                    (*ordinal, Some(i64::from(shares[class])), true)
                });
                let mut column = Column::new(records, rows, None);
                for (ordinal, chosen, ..) in judged {
                    column.entries[*ordinal as usize].member = *chosen as usize == class;
                }
                column.members = judged.iter().filter(|row| row.1 as usize == class).count() as u64;
                column
            })
            .collect();
        let mut margins = vec![None; records as usize];
        for (ordinal, _, margin, _) in judged {
            margins[*ordinal as usize] = Some(*margin);
        }
        Self { columns, margins }
    }

    /// The value of a record; `class` is 0 where there are no classes.
    pub fn value(&self, class: usize, ordinal: u32) -> Option<i64> {
        self.entry(class, ordinal)?.value
    }

    /// Whether a record is a member; of a classifier, whether the class leads.
    pub fn is_member(&self, class: usize, ordinal: u32) -> bool {
        self.entry(class, ordinal).is_some_and(|entry| entry.member)
    }

    /// The place of a record among the ranked ones, from 0 for the largest value.
    pub fn rank(&self, class: usize, ordinal: u32) -> Option<u32> {
        let rank = self.entry(class, ordinal)?.rank;
        (rank != UNRANKED).then_some(rank)
    }

    /// How far a classifier's leading class is ahead, in parts per million.
    pub fn margin(&self, ordinal: u32) -> Option<i64> {
        self.margins
            .get(ordinal as usize)
            .copied()
            .flatten()
            .map(i64::from)
    }

    /// Records that have a value.
    pub(super) fn valued(&self) -> u64 {
        self.columns.first().map_or(0, |column| {
            let entries = column.entries.iter();
            entries.filter(|entry| entry.value.is_some()).count() as u64
        })
    }

    /// Members; of a classifier, all that it judges.
    pub(super) fn members(&self) -> u64 {
        self.columns.iter().map(|column| column.members).sum()
    }

    fn entry(&self, class: usize, ordinal: u32) -> Option<&Entry> {
        self.columns.get(class)?.entries.get(ordinal as usize)
    }
}

impl Column {
    fn new(
        records: u32,
        rows: impl IntoIterator<Item = (u32, Option<i64>, bool)>,
        top: Option<u32>,
    ) -> Self {
        let none = Entry {
            value: None,
            rank: UNRANKED,
            member: false,
        };
        let mut entries = vec![none; records as usize];
        let mut ranked: Vec<(i64, u32)> = Vec::new();
        for (ordinal, value, member) in rows {
            let entry = &mut entries[ordinal as usize];
            (entry.value, entry.member) = (value, member);
            if let (Some(value), true) = (value, member) {
                ranked.push((value, ordinal));
            }
        }
        ranked.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        for (rank, (_, ordinal)) in (0_u32..).zip(ranked) {
            let entry = &mut entries[ordinal as usize];
            entry.rank = rank;
            entry.member &= top.is_none_or(|top| rank < top);
        }
        let members = entries.iter().filter(|entry| entry.member).count() as u64;
        Self { entries, members }
    }
}

//! What a forward hands out: final states of the asked rows, and inner ones where they are tapped.

/// Hidden states of one forward, f32.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct States {
    /// `[asked, hidden]` normed final states.
    pub hidden: Vec<f32>,
    /// Per tapped layer, `[asked, hidden]`: the residual of the asked rows as it enters the layer.
    pub rows: Vec<Vec<f32>>,
    /// Per tapped layer, `[pooled, hidden]`: means of that residual over each pooled range.
    pub means: Vec<Vec<f32>>,
}

impl States {
    /// Joins the states of batches that were cut from one, in their order.
    pub(crate) fn concat(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        for part in parts {
            all.hidden.extend(part.hidden);
            for (to, from) in all.rows.iter_mut().zip(part.rows) {
                to.extend(from);
            }
            for (to, from) in all.means.iter_mut().zip(part.means) {
                to.extend(from);
            }
        }
        all
    }
}

//! Reading what parts of columns follow from.

use crate::{
    Column, ColumnSet, Columns, Geometry, StripeError, StripeSet,
    parity::{Recipe, recipe, write_sum},
    read::Lost,
};
use futures_util::future::join_all;
use quoin_base::ByteRange;
use quoin_world::Buf;

/// A range of the columns in which the same ones are wanted.
pub(crate) struct Band {
    pub(crate) range: ByteRange,
    pub(crate) wanted: ColumnSet,
}

/// The bands in which a range of a segment's data lies, in order.
///
/// ```text
/// column       0    1    2        wanted
/// stripe 0     .    .    .        none
///              .    xx   xx       1, 2        the range begins within the strip of column 1
/// stripe 1     xx   xx   xx       0, 1, 2
/// stripe 2     xx   xx   .        0, 1        and ends behind that of column 1
/// ```
pub(crate) fn bands(geometry: Geometry, range: ByteRange) -> Vec<Band> {
    let parts: Vec<_> =
        (0..geometry.data.into()).map(|column| geometry.column_range(range, column)).collect();
    let is_part = |part: &&ByteRange| !part.is_empty();
    let mut edges: Vec<_> = parts.iter().filter(is_part).flat_map(|part| [part.offset, part.end()]).collect();
    edges.sort_unstable();
    edges.dedup();
    let band = |[start, end]: &[u64; 2]| {
        let range = ByteRange::new(*start, end - start);
        let wanted = (0..parts.len()).filter(|column| parts[*column].overlaps(&range));
        Band { range, wanted: wanted.map(ColumnSet::one).fold(ColumnSet::default(), ColumnSet::with) }
    };
    edges.array_windows().map(band).collect()
}

/// What all wanted columns of some bands follow from.
pub(crate) struct Gathered {
    /// By the column that is wanted.
    recipes: Vec<Option<Recipe>>,
    read: Vec<Part>,
    unread: ColumnSet,
}

/// What was read of a column.
struct Part {
    column: usize,
    range: ByteRange,
    content: Buf,
}

impl Gathered {
    /// Columns that a drive failed to read.
    pub(crate) fn unread(&self) -> ColumnSet {
        self.unread
    }

    /// Writes what a column holds in a range within one band in which it is wanted.
    pub(crate) fn write(&self, column: usize, range: ByteRange, to: &mut [u8]) {
        let recipe = self.recipes[column].as_ref().expect("it is a column that was asked for");
        match recipe[..] {
            [(source, 1)] => to.copy_from_slice(self.content(source, range)),
            _ => {
                let terms = recipe.iter().map(|(source, factor)| (self.content(*source, range), *factor));
                write_sum(&terms.collect::<Vec<_>>(), to);
            }
        }
    }

    fn content(&self, column: usize, range: ByteRange) -> &[u8] {
        let part = self.read.iter().find(|part| part.holds(column, range)).expect("it was read before");
        &part.content[(range.offset - part.range.offset) as usize..][..range.len as usize]
    }
}

impl Part {
    fn holds(&self, column: usize, range: ByteRange) -> bool {
        self.column == column && self.range.offset <= range.offset && range.end() <= self.range.end()
    }
}

impl Columns {
    /// Reads what the wanted columns of some bands follow from: those that can be read, and as much
    /// of others as the rest takes.
    pub(crate) async fn gather(
        &self,
        set: &StripeSet,
        bands: &[Band],
        mut lost: Lost,
    ) -> Result<Gathered, StripeError> {
        let mut read: Vec<Part> = Vec::new();
        loop {
            let recipes = lost.to_avoid().into_iter().find_map(|lost| recipes(set.geometry, bands, lost));
            let Some(recipes) = recipes else { return Err(lost.into_error(set)) };
            // What an earlier round has read stays good.
            let mut needs = needs(bands, &recipes);
            needs.retain(|(column, range)| !read.iter().any(|part| part.holds(*column, *range)));
            if needs.is_empty() {
                return Ok(Gathered { recipes, read, unread: lost.unread() });
            }
            for (column, range, outcome) in self.read_parts(&set.columns, needs).await {
                match outcome {
                    Ok(content) => read.push(Part { column, range, content }),
                    Err(error) => lost.note(column, error)?,
                }
            }
        }
    }

    /// Reads parts of columns, all at the same time.
    pub(crate) async fn read_parts(
        &self,
        columns: &[Column],
        parts: Vec<(usize, ByteRange)>,
    ) -> Vec<(usize, ByteRange, Result<Buf, StripeError>)> {
        let reads = parts.into_iter().map(|(place, range)| {
            let read = self.read_column(columns[place], range);
            async move { (place, range, read.await) }
        });
        join_all(reads).await
    }
}

/// By column, how each that is wanted follows from those that are not lost; `None` if one does not.
fn recipes(geometry: Geometry, bands: &[Band], lost: ColumnSet) -> Option<Vec<Option<Recipe>>> {
    let wanted = bands.iter().fold(ColumnSet::default(), |all, band| all.with(band.wanted));
    let mut recipes = vec![None; geometry.columns()];
    for column in wanted.iter() {
        recipes[column] = Some(recipe(geometry, column, lost)?);
    }
    Some(recipes)
}

/// What is to be read of which column: as few parts as possible.
fn needs(bands: &[Band], recipes: &[Option<Recipe>]) -> Vec<(usize, ByteRange)> {
    let mut needs: Vec<(usize, ByteRange)> = Vec::new();
    for Band { range, wanted } in bands {
        let sources = wanted.iter().filter_map(|column| recipes[column].as_ref()).flatten();
        let sources = sources.map(|(source, _)| ColumnSet::one(*source));
        for source in sources.fold(ColumnSet::default(), ColumnSet::with).iter() {
            let follows = |need: &&mut (usize, ByteRange)| need.0 == source && need.1.end() == range.offset;
            match needs.iter_mut().find(follows) {
                Some((_, need)) => need.len += range.len,
                None => needs.push((source, *range)),
            }
        }
    }
    needs
}

//! Figures of functions and types.

use super::{
    Figure,
    source::{Source, is_for_tests},
};
use std::collections::BTreeSet;
use syn::{
    Attribute, Fields, FnArg, Macro, ReturnType, Signature, Type, Visibility,
    spanned::Spanned,
    visit::{self, Visit},
};

/// A function that is longer does not fit a screen.
const SCREEN_LINES: usize = 60;
/// A function that is longer is a defect.
const LINES_MAX: usize = 100;
/// More fields than these that any file of the crate may change have no owner.
const OPEN_FIELDS_MAX: usize = 10;

pub(super) fn figures(sources: &[Source]) -> Vec<Figure> {
    let mut all = Counts::default();
    for source in sources {
        let mut of_file = OfFile { source, counts: &mut all, body_depth: 0 };
        of_file.visit_file(&source.file);
    }
    let share = 100.0 * all.comment_lines as f64 / all.body_lines.max(1) as f64;
    vec![
        Figure::count("functions-over-60-lines", all.long),
        Figure::count("functions-over-100-lines", all.too_long),
        Figure::count("structs-with-over-10-open-fields", all.open),
        Figure::count("asserts-in-release", all.asserts),
        Figure {
            name: "comments-in-bodies-percent",
            value: (share * 100.0).round() / 100.0,
            places: vec![format!("{} of {} lines", all.comment_lines, all.body_lines)],
        },
        Figure::count("fallible-without-errors-section", all.untold),
        Figure::count("bare-integers-side-by-side", all.bare),
    ]
}

#[derive(Default)]
struct Counts {
    long: Vec<String>,
    too_long: Vec<String>,
    open: Vec<String>,
    asserts: Vec<String>,
    untold: Vec<String>,
    bare: Vec<String>,
    comment_lines: usize,
    body_lines: usize,
}

struct OfFile<'a> {
    source: &'a Source,
    counts: &'a mut Counts,
    /// Bodies of functions that the visitor is in; inner ones are counted with the outer one.
    body_depth: usize,
}

impl OfFile<'_> {
    fn place(&self, spanned: &impl Spanned, name: &str) -> String {
        format!("{}:{} {name}", self.source.path.display(), spanned.span().start().line)
    }

    fn function(
        &mut self,
        attributes: &[Attribute],
        visibility: &Visibility,
        sig: &Signature,
        body: &syn::Block,
    ) {
        let lines = body.span().end().line - sig.span().start().line + 1;
        let place = format!("{} ({lines})", self.place(sig, &sig.ident.to_string()));
        if lines > LINES_MAX {
            self.counts.too_long.push(place.clone());
        }
        if lines > SCREEN_LINES {
            self.counts.long.push(place);
        }
        if self.source.is_product() {
            if matches!(visibility, Visibility::Public(_)) {
                self.public_function(attributes, sig);
            }
            if self.body_depth == 0 {
                self.body_lines(body);
            }
        }
    }

    fn public_function(&mut self, attributes: &[Attribute], sig: &Signature) {
        let place = self.place(sig, &sig.ident.to_string());
        if is_fallible(&sig.output) && !documentation(attributes).contains("# Errors") {
            self.counts.untold.push(place.clone());
        }
        let arguments = sig.inputs.iter().filter_map(|argument| match argument {
            FnArg::Typed(typed) => Some(bare_integer(&typed.ty)),
            FnArg::Receiver(_) => None,
        });
        let kinds: Vec<Option<String>> = arguments.collect();
        if kinds.windows(2).any(|pair| pair[0].is_some() && pair[0] == pair[1]) {
            self.counts.bare.push(place);
        }
    }

    fn body_lines(&mut self, body: &syn::Block) {
        let span = body.span();
        let inside = span.start().line..span.end().line.saturating_sub(1);
        for line in self.source.text.lines().take(inside.end).skip(inside.start) {
            match line.trim() {
                "" => {}
                comment if comment.starts_with("//") => self.counts.comment_lines += 1,
                _ => self.counts.body_lines += 1,
            }
        }
    }
}

impl<'ast> Visit<'ast> for OfFile<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.vis, &item.sig, &item.block);
        self.body_depth += 1;
        visit::visit_item_fn(self, item);
        self.body_depth -= 1;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.function(&item.attrs, &item.vis, &item.sig, &item.block);
        self.body_depth += 1;
        visit::visit_impl_item_fn(self, item);
        self.body_depth -= 1;
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if let Fields::Named(fields) = &item.fields {
            // A `pub` field of a type that the crate keeps to itself is open to the crate. What has a layout of its own, bytes on a
            // drive or a wire, is a list of its fields and nothing else.
            let is_ours = !matches!(item.vis, Visibility::Public(_)) && !has_layout(&item.attrs);
            let is_open = |field: &&syn::Field| match field.vis {
                Visibility::Restricted(_) => true,
                Visibility::Public(_) => is_ours,
                Visibility::Inherited => false,
            };
            let open = fields.named.iter().filter(is_open).count();
            if open > OPEN_FIELDS_MAX && self.source.is_product() {
                let place = self.place(&item.ident, &item.ident.to_string());
                self.counts.open.push(format!("{place} ({open})"));
            }
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        let names = ["assert", "assert_eq", "assert_ne"];
        if self.body_depth > 0
            && self.source.is_product()
            && names.iter().any(|name| item.path.is_ident(name))
        {
            let place = self.place(item, &item.path.segments[0].ident.to_string());
            self.counts.asserts.push(place);
        }
        visit::visit_macro(self, item);
    }
}

/// Whether its layout is fixed.
fn has_layout(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("repr"))
}

fn documentation(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        if let syn::Meta::NameValue(syn::MetaNameValue { value: syn::Expr::Lit(value), .. }) = &attribute.meta
            && let syn::Lit::Str(line) = &value.lit
        {
            text += &line.value();
            text.push('\n');
        }
    }
    text
}

/// Whether a `Result` is what is returned or what comes of it: of a future, or of a boxed one.
fn is_fallible(output: &ReturnType) -> bool {
    struct Find(bool);
    impl<'ast> Visit<'ast> for Find {
        fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
            self.0 |= segment.ident == "Result";
            visit::visit_path_segment(self, segment);
        }
    }
    let mut find = Find(false);
    find.visit_return_type(output);
    find.0
}

fn bare_integer(of: &Type) -> Option<String> {
    let integers = BTreeSet::from(["u8", "u16", "u32", "u64", "u128", "usize", "i32", "i64", "isize"]);
    match of {
        Type::Path(path) => {
            path.path.get_ident().map(ToString::to_string).filter(|name| integers.contains(name.as_str()))
        }
        _ => None,
    }
}

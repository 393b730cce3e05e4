//! What the document says of all resources alike: headers, conditions, statuses, and the rules of names, initiators, tags
//! and the like wherever they occur.

use quoin_api::MAX_INTEGER;
use serde_json::{Map, Value, json};

const NAME: &str = "^[a-z0-9][a-z0-9._-]*$";
const INITIATOR: &str = "^([iI][qQ][nN]\\.[0-9]{4}-(0[1-9]|1[0-2])\\.[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)*(:[A-Za-z0-9.:-]*)?|\
                         [eE][uU][iI]\\.[0-9A-Fa-f]{16}|[nN][aA][aA]\\.[0-9A-Fa-f]{16}([0-9A-Fa-f]{16})?)$";
const TAG_KEY: &str = "^[A-Za-z0-9._/-]{1,63}$";
/// Text without control characters.
const TEXT: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";
const FOLDER: &str = "^/?([a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62})*)?/?$";
/// An IPv4 or IPv6 network or address. Of the short forms of IPv6 those in which `::` stands last or before the last group.
const NETWORK: &str = "^(((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\
                       (/(3[0-2]|[12]?[0-9]))?|(([0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}|\
                       ([0-9A-Fa-f]{1,4}:){1,6}:([0-9A-Fa-f]{1,4})?|::([0-9A-Fa-f]{1,4})?)\
                       (/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?)$";

/// Completes the document.
pub(super) fn complete(document: &mut Value) {
    if let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) {
        schemas.iter_mut().for_each(|(name, schema)| complete_schema(name, schema));
    }
    let Some(paths) = document.pointer_mut("/paths").and_then(Value::as_object_mut) else { return };
    for (path, item) in paths.iter_mut() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            complete_operation(path, method, operation);
        }
    }
}

/// What the rules need to know about an operation.
struct Operation<'a> {
    path: &'a str,
    method: &'a str,
    /// Whether its path leads to or below a resource that has an entity tag.
    tagged: Option<Place>,
    has_body: bool,
    /// Whether it lists by pages.
    is_list: bool,
}

fn complete_operation(path: &str, method: &str, operation: &mut Value) {
    let Some(operation) = operation.as_object_mut() else { return };
    let has_body = operation.contains_key("requestBody");
    let parameters = operation.entry("parameters").or_insert_with(|| json!([]));
    let parameters = parameters.as_array_mut().expect("parameters are a list");
    // A list is known by its cursor.
    let is_list = parameters.iter().any(|parameter| parameter["name"] == "cursor");
    let known = Operation { path, method, tagged: tagged(path), has_body, is_list };
    complete_parameters(&known, parameters);
    if parameters.is_empty() {
        operation.remove("parameters");
    }
    let responses = operation.entry("responses").or_insert_with(|| json!({}));
    let Some(responses) = responses.as_object_mut() else { return };
    complete_problems(&known, responses);
    complete_headers(&known, responses);
}

/// Adds the rules of the parameters, and the headers that requests of this method may carry.
fn complete_parameters(operation: &Operation, parameters: &mut Vec<Value>) {
    parameters.iter_mut().for_each(|parameter| complete_parameter(operation.path, parameter));
    if operation.method != "get" && operation.tagged.is_some() {
        parameters.push(json!({
            "name": "If-Match", "in": "header", "required": false,
            "description": "Entity tags (`ETag`). Unless the object has one of them, nothing is changed",
            "schema": { "type": "string", "pattern": "^(\\*|\"[0-9a-f]{16}\"(, \"[0-9a-f]{16}\")*)$" },
            "example": "*",
        }));
    }
    if operation.method == "post" {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "A random key. The same request with the same key within 24 hours is not carried out again and \
                            gets the first answer; after a restart of the array, the object as it is now. The array \
                            remembers the last 1000 keys.",
            "schema": { "type": "string", "pattern": "^[!-~]{1,255}$" },
        }));
    }
}

/// Adds the problems that every request of this kind can meet.
fn complete_problems(operation: &Operation, responses: &mut Map<String, Value>) {
    problem(responses, 400, "The request is not well-formed");
    if operation.has_body {
        problem(responses, 408, "The body did not arrive in time");
    } else {
        responses.remove("415");
    }
    // NOTE: The first description of a status stays, so what is special to lists comes before what all have.
    if operation.is_list {
        let description = "The last item of the previous page is gone: read the list from its beginning";
        problem(responses, 409, description);
    }
    if operation.method == "post" {
        problem(responses, 409, "Something is in the way");
        problem(responses, 422, "The request asks for something that cannot be");
    }
    if operation.method != "get" && operation.tagged.is_some() {
        problem(responses, 412, "If-Match does not hold");
    }
    problem(responses, 503, "The pool is offline, or too much is asked at once");
}

/// Adds the headers of the responses that are documented by now.
fn complete_headers(operation: &Operation, responses: &mut Map<String, Value>) {
    let mut header = |status: &str, name: &str, description: &str| {
        if let Some(response) = responses.get_mut(status).and_then(Value::as_object_mut) {
            let headers = response.entry("headers").or_insert_with(|| json!({}));
            headers[name] = json!({ "description": description, "schema": { "type": "string" } });
        }
    };
    if operation.is_list {
        let description = "Leads to the next page, as `<…>; rel=\"next\"`; missing on the last (RFC 8288)";
        header("200", "Link", description);
    }
    if operation.tagged == Some(Place::Object) && ["get", "patch", "put"].contains(&operation.method) {
        let description = "Changes when somebody changes the object, not with figures such as its used space";
        header("200", "ETag", description);
    }
    header("201", "Location", "The path of the new object");
    header("202", "Location", "The job to follow");
    header("401", "WWW-Authenticate", "How to authenticate");
}

/// Where in a resource that has an entity tag a path leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Object,
    Below,
}

fn tagged(path: &str) -> Option<Place> {
    let path = path.replace(['{', '}'], "");
    let resource = crate::pipeline::resource(&path)?;
    Some(if resource.path() == path { Place::Object } else { Place::Below })
}

fn problem(responses: &mut Map<String, Value>, status: u16, description: &str) {
    responses.entry(status.to_string()).or_insert_with(|| {
        let schema = json!({ "$ref": "#/components/schemas/Problem" });
        json!({ "description": description, "content": { "application/problem+json": { "schema": schema } } })
    });
}

fn name() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 63, "pattern": NAME })
}

fn complete_parameter(path: &str, parameter: &mut Value) {
    let (place, of) = (parameter["in"].clone(), parameter["name"].as_str().unwrap_or_default().to_owned());
    // Filters of lists.
    if place != "path" {
        if of == "tag" {
            parameter["schema"]["items"] = json!({ "type": "string", "pattern": "^[A-Za-z0-9._/-]+(=.*)?$" });
        }
        if of == "folder" {
            parameter["schema"] = json!({ "type": "string", "pattern": FOLDER, "maxLength": 127 });
        }
        if of == "sort" {
            parameter["schema"] = json!({
                "type": "string", "pattern": "^-?(name|folder|size|allocated|mapped|created)$",
            });
        }
        if ["since_ms", "after"].contains(&of.as_str()) {
            parameter["schema"]["maximum"] = MAX_INTEGER.into();
        }
        return;
    }
    // Names in the path, and the ids of jobs and copies.
    parameter["schema"] = match of.as_str() {
        "id" if path.contains("/jobs/") => json!({ "type": "string", "pattern": "^[a-z0-9-]{1,63}$" }),
        "id" => json!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": u32::MAX }),
        _ => name(),
    };
}

/// Adds the rules of a schema's fields, where the types of the fields do not say them.
fn complete_schema(schema: &str, body: &mut Value) {
    if schema == "Secret" {
        body["pattern"] = TEXT.into();
    }
    // Only what clients send has rules; what the array answers keeps to them anyway.
    let makes = ["Create", "Update", "Change", "Restore", "Refresh", "Retain", "Set", "Member", "Login"];
    if !makes.iter().any(|end| schema.ends_with(end)) {
        return;
    }
    for (field, rule) in body["properties"].as_object_mut().into_iter().flatten() {
        complete_field(field, rule);
    }
    complete_whole(schema, body);
}

/// Adds the rules of one field, by its name: a name means the same in all requests.
fn complete_field(field: &str, rule: &mut Value) {
    match field {
        "volume" | "host" | "group" | "target" | "to" | "from" => restrict(rule, name()),
        "volumes" => rule["items"] = name(),
        "initiators" => rule["items"] = json!({ "type": "string", "maxLength": 223, "pattern": INITIATOR }),
        "allow" => rule["items"] = json!({ "type": "string", "pattern": NETWORK }),
        "tls_clients" => {
            rule["items"] = json!({ "type": "string", "pattern": "^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$" });
        }
        "folder" => restrict(rule, json!({ "type": "string", "pattern": FOLDER, "maxLength": 127 })),
        "tags" => {
            rule["propertyNames"] = json!({ "pattern": TAG_KEY });
            rule["maxProperties"] = 32.into();
            let kind = rule["additionalProperties"]["type"].clone();
            rule["additionalProperties"] = json!({ "type": kind, "pattern": TEXT, "maxLength": 255 });
        }
        "block_bytes" => {
            *rule = json!({
                "description": rule["description"], "type": "integer", "enum": [512, 4096], "default": 512,
            });
        }
        "user" => rule["pattern"] = "^[\\u0021-\\u007e]+$".into(),
        "rules" => {
            rule["maxItems"] = 3.into();
            let once = |every: &str| {
                let same = json!({ "properties": { "every": { "const": every } } });
                json!({ "contains": same, "minContains": 0, "maxContains": 1 })
            };
            rule["allOf"] = ["hourly", "daily", "weekly"].map(once).to_vec().into();
        }
        "from_bytes" | "to_bytes" => {
            rule["multipleOf"] = 512.into();
            rule["maximum"] = (64u64 << 40).into();
        }
        "length_bytes" => {
            rule["multipleOf"] = 512.into();
            (rule["minimum"], rule["maximum"]) = (512.into(), (64u64 << 40).into());
        }
        "rate_bytes_s" | "bytes" => rule["maximum"] = MAX_INTEGER.into(),
        _ => {}
    }
}

/// Adds the rules that join several fields of a schema.
fn complete_whole(schema: &str, body: &mut Value) {
    let one_of = |one: &str, other: &str| {
        let alone = |field: &str, not: &str| json!({ "required": [field], "properties": { field: { "not": { "type": "null" } }, not: { "type": "null" } } });
        json!([alone(one, other), alone(other, one)])
    };
    match schema {
        "VolumeCreate" => {
            let large =
                json!({ "properties": { "block_bytes": { "const": 4096 } }, "required": ["block_bytes"] });
            (body["if"], body["then"]) =
                (large, json!({ "properties": { "size_bytes": { "multipleOf": 4096 } } }));
        }
        "ScheduleCreate" => body["oneOf"] = one_of("volume", "group"),
        "ReserveSet" => body["oneOf"] = one_of("percent", "bytes"),
        "HostChange" => {
            body["not"] = json!({
                "properties": { "remove_chap": { "const": true }, "chap": { "not": { "type": "null" } } },
                "required": ["remove_chap", "chap"],
            });
        }
        _ => {}
    }
}

/// Adds a rule to a field that may be null as well.
fn restrict(field: &mut Value, rule: Value) {
    // A reference to another schema, such as a login, says all itself.
    if field["type"].is_null() {
        return;
    }
    let Value::Object(rule) = rule else { return };
    for (keyword, value) in rule.into_iter().filter(|(keyword, _)| keyword != "type") {
        field[keyword] = value;
    }
}

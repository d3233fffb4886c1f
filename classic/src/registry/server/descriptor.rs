//! Descriptors of the services for server reflection: their calls and messages, from tables.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};

/// The file of `api.Registry` and its experimental part.
const REGISTRY: &str = "registry.proto";
/// The file of health checks.
const HEALTH: &str = "grpc/health/v1/health.proto";
/// The file of the answer of the experimental call.
const STRUCT: &str = "google/protobuf/struct.proto";

/// A field: its name, its number, whether it is repeated, and its type: `string`, `bool`, `double`, or the
/// full name of a message or an enumeration.
type Field = (&'static str, i32, bool, &'static str);
/// A message.
type Fields = (&'static str, &'static [Field]);
/// A call: its name, its request and its answer, and whether that is a stream.
type Call = (&'static str, &'static str, &'static str, bool);

const API: &[Field] = &[
    ("group", 1, false, "string"),
    ("version", 2, false, "string"),
    ("kind", 3, false, "string"),
    ("plural", 4, false, "string"),
];
const TYPED: &[Field] = &[("type", 1, false, "string"), ("value", 2, false, "string")];

/// The messages of `api`, in the order of their numbers.
pub(super) const MESSAGES: &[Fields] = &[
    (
        "Channel",
        &[
            ("name", 1, false, "string"),
            ("csvName", 2, false, "string"),
            ("deprecation", 3, false, "api.Deprecation"),
        ],
    ),
    ("PackageName", &[("name", 1, false, "string")]),
    (
        "Package",
        &[
            ("name", 1, false, "string"),
            ("channels", 2, true, "api.Channel"),
            ("defaultChannelName", 3, false, "string"),
            ("deprecation", 4, false, "api.Deprecation"),
        ],
    ),
    ("Deprecation", &[("message", 1, false, "string")]),
    ("GroupVersionKind", API),
    ("Dependency", TYPED),
    ("Property", TYPED),
    (
        "Bundle",
        &[
            ("csvName", 1, false, "string"),
            ("packageName", 2, false, "string"),
            ("channelName", 3, false, "string"),
            ("csvJson", 4, false, "string"),
            ("object", 5, true, "string"),
            ("bundlePath", 6, false, "string"),
            ("providedApis", 7, true, "api.GroupVersionKind"),
            ("requiredApis", 8, true, "api.GroupVersionKind"),
            ("version", 9, false, "string"),
            ("skipRange", 10, false, "string"),
            ("dependencies", 11, true, "api.Dependency"),
            ("properties", 12, true, "api.Property"),
            ("replaces", 13, false, "string"),
            ("skips", 14, true, "string"),
            ("deprecation", 15, false, "api.Deprecation"),
        ],
    ),
    (
        "ChannelEntry",
        &[
            ("packageName", 1, false, "string"),
            ("channelName", 2, false, "string"),
            ("bundleName", 3, false, "string"),
            ("replaces", 4, false, "string"),
        ],
    ),
    ("ListPackageRequest", &[]),
    ("ListBundlesRequest", &[]),
    ("GetPackageRequest", &[("name", 1, false, "string")]),
    (
        "GetBundleRequest",
        &[
            ("pkgName", 1, false, "string"),
            ("channelName", 2, false, "string"),
            ("csvName", 3, false, "string"),
        ],
    ),
    (
        "GetBundleInChannelRequest",
        &[
            ("pkgName", 1, false, "string"),
            ("channelName", 2, false, "string"),
        ],
    ),
    ("GetAllReplacementsRequest", &[("csvName", 1, false, "string")]),
    (
        "GetReplacementRequest",
        &[
            ("csvName", 1, false, "string"),
            ("pkgName", 2, false, "string"),
            ("channelName", 3, false, "string"),
        ],
    ),
    ("GetAllProvidersRequest", API),
    ("GetLatestProvidersRequest", API),
    ("GetDefaultProviderRequest", API),
    (
        "ExperimentalListPackageCustomSchemasRequest",
        &[
            ("schema", 1, false, "string"),
            ("packageName", 2, false, "string"),
        ],
    ),
];

const CALLS: &[Call] = &[
    ("ListPackages", "ListPackageRequest", "api.PackageName", true),
    ("GetPackage", "GetPackageRequest", "api.Package", false),
    ("GetBundle", "GetBundleRequest", "api.Bundle", false),
    (
        "GetBundleForChannel",
        "GetBundleInChannelRequest",
        "api.Bundle",
        false,
    ),
    (
        "GetChannelEntriesThatReplace",
        "GetAllReplacementsRequest",
        "api.ChannelEntry",
        true,
    ),
    (
        "GetBundleThatReplaces",
        "GetReplacementRequest",
        "api.Bundle",
        false,
    ),
    (
        "GetChannelEntriesThatProvide",
        "GetAllProvidersRequest",
        "api.ChannelEntry",
        true,
    ),
    (
        "GetLatestChannelEntriesThatProvide",
        "GetLatestProvidersRequest",
        "api.ChannelEntry",
        true,
    ),
    (
        "GetDefaultBundleThatProvides",
        "GetDefaultProviderRequest",
        "api.Bundle",
        false,
    ),
    ("ListBundles", "ListBundlesRequest", "api.Bundle", true),
];

const EXPERIMENTS: &[Call] = &[(
    "ExperimentalListPackageCustomSchemas",
    "ExperimentalListPackageCustomSchemasRequest",
    "google.protobuf.Struct",
    true,
)];

const HEALTH_MESSAGES: &[Fields] = &[
    ("HealthCheckRequest", &[("service", 1, false, "string")]),
    (
        "HealthCheckResponse",
        &[(
            "status",
            1,
            false,
            "grpc.health.v1.HealthCheckResponse.ServingStatus",
        )],
    ),
];

const HEALTH_CALLS: &[Call] = &[
    (
        "Check",
        "HealthCheckRequest",
        "grpc.health.v1.HealthCheckResponse",
        false,
    ),
    (
        "Watch",
        "HealthCheckRequest",
        "grpc.health.v1.HealthCheckResponse",
        true,
    ),
];

/// The descriptors of all services.
pub(super) fn files() -> FileDescriptorSet {
    let registry = FileDescriptorProto {
        service: vec![
            service("api", "Registry", CALLS),
            service("api", "ExperimentalRegistry", EXPERIMENTS),
        ],
        dependency: vec![STRUCT.to_owned()],
        ..file(REGISTRY, "api", MESSAGES)
    };
    let mut health = FileDescriptorProto {
        service: vec![service("grpc.health.v1", "Health", HEALTH_CALLS)],
        ..file(HEALTH, "grpc.health.v1", HEALTH_MESSAGES)
    };
    if let Some(answer) = health.message_type.last_mut() {
        let states = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
        answer.enum_type.push(enumeration("ServingStatus", &states));
    }
    FileDescriptorSet {
        file: vec![structures(), registry, health],
    }
}

/// An enumeration whose values are numbered from 0.
fn enumeration(name: &str, values: &[&str]) -> EnumDescriptorProto {
    let values = values
        .iter()
        .zip(0..)
        .map(|(value, number)| EnumValueDescriptorProto {
            name: Some((*value).to_owned()),
            number: Some(number),
            options: None,
        });
    EnumDescriptorProto {
        name: Some(name.to_owned()),
        value: values.collect(),
        ..EnumDescriptorProto::default()
    }
}

fn file(name: &str, package: &str, messages: &[Fields]) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.to_owned()),
        package: Some(package.to_owned()),
        message_type: messages.iter().map(message).collect(),
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    }
}

fn message((name, fields): &Fields) -> DescriptorProto {
    DescriptorProto {
        name: Some((*name).to_owned()),
        field: fields.iter().map(field).collect(),
        ..DescriptorProto::default()
    }
}

fn field((name, number, is_repeated, kind): &Field) -> FieldDescriptorProto {
    let (kind, type_name) = match *kind {
        "string" => (Type::String, None),
        "bool" => (Type::Bool, None),
        "double" => (Type::Double, None),
        "google.protobuf.NullValue" | "grpc.health.v1.HealthCheckResponse.ServingStatus" => {
            (Type::Enum, Some(format!(".{kind}")))
        }
        message => (Type::Message, Some(format!(".{message}"))),
    };
    let label = if *is_repeated {
        Label::Repeated
    } else {
        Label::Optional
    };
    FieldDescriptorProto {
        name: Some((*name).to_owned()),
        number: Some(*number),
        label: Some(label.into()),
        r#type: Some(kind.into()),
        type_name,
        json_name: Some((*name).to_owned()),
        ..FieldDescriptorProto::default()
    }
}

fn service(package: &str, name: &str, calls: &[Call]) -> ServiceDescriptorProto {
    let method = |(name, request, answer, is_stream): &Call| MethodDescriptorProto {
        name: Some((*name).to_owned()),
        input_type: Some(format!(".{package}.{request}")),
        output_type: Some(format!(".{answer}")),
        server_streaming: Some(*is_stream),
        ..MethodDescriptorProto::default()
    };
    ServiceDescriptorProto {
        name: Some(name.to_owned()),
        method: calls.iter().map(method).collect(),
        ..ServiceDescriptorProto::default()
    }
}

/// JSON values as protobuf has them.
fn structures() -> FileDescriptorProto {
    use prost_types::{MessageOptions, OneofDescriptorProto};
    const VALUE: &[Field] = &[
        ("null_value", 1, false, "google.protobuf.NullValue"),
        ("number_value", 2, false, "double"),
        ("string_value", 3, false, "string"),
        ("bool_value", 4, false, "bool"),
        ("struct_value", 5, false, "google.protobuf.Struct"),
        ("list_value", 6, false, "google.protobuf.ListValue"),
    ];
    const ENTRY: &[Field] = &[
        ("key", 1, false, "string"),
        ("value", 2, false, "google.protobuf.Value"),
    ];
    const FIELDS: &[Field] = &[("fields", 1, true, "google.protobuf.Struct.FieldsEntry")];
    const LIST: &[Field] = &[("values", 1, true, "google.protobuf.Value")];
    let mut value = message(&("Value", VALUE));
    for field in &mut value.field {
        field.oneof_index = Some(0);
    }
    value.oneof_decl = vec![OneofDescriptorProto {
        name: Some("kind".to_owned()),
        options: None,
    }];
    let entry = DescriptorProto {
        options: Some(MessageOptions {
            map_entry: Some(true),
            ..MessageOptions::default()
        }),
        ..message(&("FieldsEntry", ENTRY))
    };
    let structure = DescriptorProto {
        nested_type: vec![entry],
        ..message(&("Struct", FIELDS))
    };
    FileDescriptorProto {
        message_type: vec![structure, value, message(&("ListValue", LIST))],
        enum_type: vec![enumeration("NullValue", &["NULL_VALUE"])],
        ..file(STRUCT, "google.protobuf", &[])
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};

    use super::*;
    use crate::registry::messages;

    /// The numbers and names of fields in an encoded message, with all fields set.
    fn numbers(message: &impl Message) -> Vec<i32> {
        let bytes = message.encode_to_vec();
        let mut rest = bytes.as_slice();
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (number, kind) = decode_key(&mut rest).unwrap();
            assert!(matches!(kind, WireType::LengthDelimited), "field {number}");
            skip_field(kind, number, &mut rest, DecodeContext::default()).unwrap();
            found.push(i32::try_from(number).unwrap());
        }
        found
    }

    fn described(name: &str) -> Vec<i32> {
        let (_, fields) = MESSAGES.iter().find(|(found, _)| *found == name).unwrap();
        fields.iter().map(|(_, number, ..)| *number).collect()
    }

    #[test]
    fn messages_have_the_fields_that_reflection_says() {
        let text = || "x".to_owned();
        let deprecation = || Some(messages::Deprecation { message: text() });
        let api = messages::GroupVersionKind {
            group: text(),
            version: text(),
            kind: text(),
            plural: text(),
        };
        let property = messages::Property {
            r#type: text(),
            value: text(),
        };
        let channel = messages::Channel {
            name: text(),
            csv_name: text(),
            deprecation: deprecation(),
        };
        let package = messages::Package {
            name: text(),
            channels: vec![channel.clone()],
            default_channel_name: text(),
            deprecation: deprecation(),
        };
        let bundle = messages::Bundle {
            csv_name: text(),
            package_name: text(),
            channel_name: text(),
            csv_json: text(),
            object: vec![text()],
            bundle_path: text(),
            provided_apis: vec![api.clone()],
            required_apis: vec![api.clone()],
            version: text(),
            skip_range: text(),
            dependencies: vec![property.clone()],
            properties: vec![property.clone()],
            replaces: text(),
            skips: vec![text()],
            deprecation: deprecation(),
        };
        let entry = messages::ChannelEntry {
            package_name: text(),
            channel_name: text(),
            bundle_name: text(),
            replaces: text(),
        };
        assert_eq!(numbers(&bundle), described("Bundle"));
        assert_eq!(numbers(&package), described("Package"));
        assert_eq!(numbers(&channel), described("Channel"));
        assert_eq!(numbers(&api), described("GroupVersionKind"));
        assert_eq!(numbers(&property), described("Property"));
        assert_eq!(numbers(&entry), described("ChannelEntry"));
    }

    #[test]
    fn every_message_that_a_call_names_is_described() {
        let set = files();
        let messages: Vec<String> = set
            .file
            .iter()
            .flat_map(|file| {
                let package = file.package();
                file.message_type
                    .iter()
                    .map(move |message| format!(".{package}.{}", message.name()))
            })
            .collect();
        let services = set.file.iter().flat_map(|file| &file.service);
        for call in services.flat_map(|service| &service.method) {
            for named in [call.input_type(), call.output_type()] {
                assert!(messages.iter().any(|message| message == named), "{named}");
            }
        }
    }
}

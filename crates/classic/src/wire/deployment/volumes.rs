//! The Go type of a Volume.

use super::{FIELD_REFERENCE, NAMED, RESOURCE_REFERENCE, optional, pointer, text};
use crate::wire::{Field, Shape};

const ITEM: Shape = Shape::Struct(&[text("key"), text("path"), pointer("mode")]);
const DOWNWARD_ITEM: Shape = Shape::Struct(&[
    text("path"),
    Field::pointer("fieldRef", FIELD_REFERENCE),
    Field::pointer("resourceFieldRef", RESOURCE_REFERENCE),
    pointer("mode"),
]);
pub(super) const VOLUME: Shape = Shape::Struct(&[
    text("name"),
    Field::pointer("hostPath", Shape::Struct(&[text("path"), pointer("type")])),
    Field::pointer(
        "emptyDir",
        Shape::Struct(&[optional("medium"), Field::pointer("sizeLimit", Shape::Quantities)]),
    ),
    Field::pointer(
        "secret",
        Shape::Struct(&[
            optional("secretName"),
            Field::optional("items", Shape::List(&ITEM)),
            pointer("defaultMode"),
            pointer("optional"),
        ]),
    ),
    Field::pointer(
        "nfs",
        Shape::Struct(&[text("server"), text("path"), optional("readOnly")]),
    ),
    Field::pointer(
        "persistentVolumeClaim",
        Shape::Struct(&[text("claimName"), optional("readOnly")]),
    ),
    Field::pointer(
        "downwardAPI",
        Shape::Struct(&[
            Field::optional("items", Shape::List(&DOWNWARD_ITEM)),
            pointer("defaultMode"),
        ]),
    ),
    Field::pointer(
        "configMap",
        Shape::Struct(&[
            optional("name"),
            Field::optional("items", Shape::List(&ITEM)),
            pointer("defaultMode"),
            pointer("optional"),
        ]),
    ),
    Field::pointer(
        "projected",
        Shape::Struct(&[
            Field::always("sources", "null", Shape::List(&PROJECTION)),
            pointer("defaultMode"),
        ]),
    ),
    Field::pointer(
        "csi",
        Shape::Struct(&[
            text("driver"),
            pointer("readOnly"),
            pointer("fsType"),
            optional("volumeAttributes"),
            Field::pointer("nodePublishSecretRef", NAMED),
        ]),
    ),
    pointer("ephemeral"),
    Field::pointer(
        "image",
        Shape::Struct(&[optional("reference"), optional("pullPolicy")]),
    ),
]);
const PROJECTION: Shape = Shape::Struct(&[
    Field::pointer("secret", PROJECTED_KEYS),
    Field::pointer(
        "downwardAPI",
        Shape::Struct(&[Field::optional("items", Shape::List(&DOWNWARD_ITEM))]),
    ),
    Field::pointer("configMap", PROJECTED_KEYS),
    Field::pointer(
        "serviceAccountToken",
        Shape::Struct(&[optional("audience"), pointer("expirationSeconds"), text("path")]),
    ),
]);
const PROJECTED_KEYS: Shape = Shape::Struct(&[
    optional("name"),
    Field::optional("items", Shape::List(&ITEM)),
    pointer("optional"),
]);

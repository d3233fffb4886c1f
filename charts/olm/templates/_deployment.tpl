{{/* The Deployment of a manager, changed in place as the values say. It gets the object, the values of the manager and the root. */}}
{{- define "olm.deployment" -}}
{{- $spec := .object.spec.template.spec -}}
{{- $image := .root.Values.image -}}
{{- $container := first $spec.containers -}}
{{- $name := $container.image | trimPrefix "olmv1/" | splitList ":" -}}
{{- $prefix := required "image.prefix is empty: set it to the registry with the images and the path above their names, for example --set image.prefix=registry.example/olmv1" $image.prefix -}}
{{- $tag := $image.tag | default (last $name) -}}
{{- $_ := set $container "image" (printf "%s/%s:%s" (trimSuffix "/" $prefix) (first $name) $tag) -}}
{{- $_ := set $container "imagePullPolicy" $image.pullPolicy -}}
{{- $_ := set $container "resources" (mergeOverwrite (dict) $container.resources .values.resources) -}}
{{- with .values.extraArgs }}{{ $_ := set $container "args" (concat $container.args .) }}{{ end -}}
{{- with .values.extraEnv }}{{ $_ := set $container "env" (concat ($container.env | default list) .) }}{{ end -}}
{{- with $image.pullSecrets }}{{ $_ := set $spec "imagePullSecrets" . }}{{ end -}}
{{- with .values.nodeSelector }}{{ $_ := set $spec "nodeSelector" (mergeOverwrite (dict) $spec.nodeSelector .) }}{{ end -}}
{{- with .values.tolerations }}{{ $_ := set $spec "tolerations" . }}{{ end -}}
{{- with .values.affinity }}{{ $_ := set $spec "affinity" . }}{{ end -}}
{{- with .values.priorityClassName }}{{ $_ := set $spec "priorityClassName" . }}{{ end -}}
{{- $metadata := .object.spec.template.metadata -}}
{{- with .values.podAnnotations }}{{ $_ := set $metadata "annotations" (mergeOverwrite (dict) $metadata.annotations .) }}{{ end -}}
{{- $_ := set .object.spec "replicas" .values.replicas -}}
{{- end -}}

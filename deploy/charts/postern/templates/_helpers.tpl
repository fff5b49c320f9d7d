{{/* The name of the chart, or the one that replaces it. */}}
{{- define "postern.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the objects. It has at most 52 characters, because the name of a pod's revision label is longer. */}}
{{- define "postern.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "postern.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The labels that never change: the selector of a StatefulSet is immutable. */}}
{{- define "postern.selectorLabels" -}}
app.kubernetes.io/name: {{ include "postern.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "postern.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "postern.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/component: server
{{- end -}}

{{/* A digest wins over a tag. */}}
{{- define "postern.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "postern.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "postern.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The URL under which clients reach the server: also the issuer of endpoint tokens. */}}
{{- define "postern.externalUrl" -}}
{{- if .Values.externalUrl -}}
{{- .Values.externalUrl -}}
{{- else -}}
{{- $host := printf "%s.%s.svc" (include "postern.fullname" .) .Release.Namespace -}}
{{- with .Values.hosts }}{{ $host = first . }}{{ end -}}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{- $public := or .Values.ingress.enabled .Values.tlsRoute.enabled -}}
{{- $port := .Values.service.port | int -}}
{{- if or $public (eq $port 443) -}}
https://{{ $host }}
{{- else -}}
https://{{ $host }}:{{ $port }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The names of the server. The first one is in the administrator's kubeconfig, which commands in the pod of a StatefulSet use. It is
127.0.0.1 while the certificate is self-signed. A given certificate rarely covers that: then it is the first of hosts,
which hostAliases resolves to 127.0.0.1 in the pod.
*/}}
{{- define "postern.hosts" -}}
{{- $service := printf "%s.%s" (include "postern.fullname" .) .Release.Namespace -}}
{{- $own := list (printf "%s.svc" $service) (printf "%s.svc.%s" $service .Values.clusterDomain) -}}
{{- $first := ternary (list) (list "127.0.0.1") (ne .Values.tls.secretName "") -}}
{{- concat $first .Values.hosts $own | uniq | toJson -}}
{{- end -}}

{{/* The hosts that are names: a TLS handshake has no address, so nothing forwards by one. */}}
{{- define "postern.names" -}}
{{- $names := list -}}
{{- range .Values.hosts -}}
{{- if not (regexMatch "^[0-9.]+$|:" .) }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The settings file. */}}
{{- define "postern.settings" -}}
{{- $settings := dict
    "host" (include "postern.hosts" . | fromJsonArray)
    "external-url" (include "postern.externalUrl" .) -}}
{{- if .Values.tls.secretName -}}
{{- $_ := set $settings "tls-cert-file" "/etc/postern/tls/tls.crt" -}}
{{- $_ := set $settings "tls-key-file" "/etc/postern/tls/tls.key" -}}
{{- end -}}
{{- if .Values.auditPolicy -}}
{{- $_ := set $settings "audit-policy-file" "/etc/postern/settings/audit-policy.yaml" -}}
{{- end -}}
{{- $defaults := dict -}}
{{- if .Values.store.url -}}
{{- $settings = merge $settings (include "postern.storeSettings" . | fromJson) -}}
{{- /* A pod of a Deployment has no volume that outlives it, so the records go to where its log goes. */ -}}
{{- $_ := set $defaults "audit-log-path" "-" -}}
{{- end -}}
{{- toYaml (merge $settings .Values.settings $defaults) -}}
{{- end -}}

{{/* The settings of a shared store. */}}
{{- define "postern.storeSettings" -}}
{{- $settings := dict "store" .Values.store.url -}}
{{- if .Values.store.caSecret.name -}}
{{- $_ := set $settings "etcd-ca-file" (printf "/etc/postern/etcd-ca/%s" .Values.store.caSecret.key) -}}
{{- end -}}
{{- if .Values.store.clientCertificateSecret.name -}}
{{- $_ := set $settings "etcd-cert-file" "/etc/postern/etcd-client/tls.crt" -}}
{{- $_ := set $settings "etcd-key-file" "/etc/postern/etcd-client/tls.key" -}}
{{- end -}}
{{- if .Values.store.user -}}
{{- $_ := set $settings "etcd-user" .Values.store.user -}}
{{- $_ := set $settings "etcd-password-file" (printf "/etc/postern/etcd-password/%s" .Values.store.passwordSecret.key) -}}
{{- end -}}
{{- toJson $settings -}}
{{- end -}}

{{/* The Secrets of a shared store, by the names of their directories below /etc/postern. */}}
{{- define "postern.storeSecrets" -}}
{{- $secrets := dict -}}
{{- if .Values.store.url -}}
{{- with .Values.store.caSecret.name }}{{ $_ := set $secrets "etcd-ca" . }}{{ end -}}
{{- with .Values.store.clientCertificateSecret.name }}{{ $_ := set $secrets "etcd-client" . }}{{ end -}}
{{- with .Values.store.passwordSecret.name }}{{ $_ := set $secrets "etcd-password" . }}{{ end -}}
{{- with .Values.keyring.secretName }}{{ $_ := set $secrets "keyring" . }}{{ end -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end -}}

{{/* The ports of the members of etcd. A member without one has etcd's own. */}}
{{- define "postern.storePorts" -}}
{{- $ports := list -}}
{{- $members := .Values.store.url | trimPrefix "etcd://" | splitList "/" | first -}}
{{- range splitList "," $members -}}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" | default "2379" -}}
{{- $ports = append $ports (int $port) -}}
{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}

{{/* One entry of volumeClaimTemplates. */}}
{{- define "postern.claim" -}}
- metadata:
    name: {{ .name }}
    labels:
      {{- include "postern.selectorLabels" .root | nindent 6 }}
    {{- with .claim.annotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .claim.storageClassName }}
    storageClassName: {{ . | quote }}
    {{- end }}
    resources:
      requests:
        storage: {{ .claim.size | quote }}
{{- end -}}

{{/* kube-apiserver 1.20 has the older version alone. */}}
{{- define "postern.policyVersion" -}}
{{- if .Capabilities.APIVersions.Has "policy/v1" }}policy/v1{{ else }}policy/v1beta1{{ end -}}
{{- end -}}

{{/* Values that contradict each other end the rendering with a message. */}}
{{- define "postern.check" -}}
{{- if and (or .Values.ingress.enabled .Values.tlsRoute.enabled) (not (include "postern.names" . | fromJsonArray)) -}}
{{- fail "hosts has no name: ingress and tlsRoute forward by the name in the TLS handshake, so add one" -}}
{{- end -}}
{{- if and .Values.tlsRoute.enabled (not .Values.tlsRoute.parentRefs) -}}
{{- fail "tlsRoute.parentRefs is empty: name the Gateway with a listener of protocol TLS and mode Passthrough" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.controller) (not .Values.ingress.annotations) -}}
{{- fail "ingress needs TLS passthrough: set ingress.controller to nginx or haproxy, or ingress.annotations to those of your controller" -}}
{{- end -}}
{{- include "postern.checkForm" . -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.serviceMonitor.tokenSecret.name) -}}
{{- fail "metrics.serviceMonitor.tokenSecret.name is empty: /metrics needs an access key of a member of system:masters" -}}
{{- end -}}
{{- end -}}

{{/* Either one server with a database on a volume, or several servers with a store on etcd. */}}
{{- define "postern.checkForm" -}}
{{- $store := .Values.store -}}
{{- if $store.url -}}
{{- if ne (toJson .Values.persistence) (include "postern.noPersistence" .) -}}
{{- fail "persistence is for the database of one server, and store.url puts the data into etcd: remove one of them" -}}
{{- end -}}
{{- if not .Values.hosts -}}
{{- fail "hosts is empty: name the servers as clients do" -}}
{{- end -}}
{{- if eq (empty .Values.keyring.secretName) (empty .Values.keyring.source) -}}
{{- fail "set exactly one of keyring.secretName and keyring.source: all servers need the keyring that postern init has made" -}}
{{- end -}}
{{- if ne (empty $store.user) (empty $store.passwordSecret.name) -}}
{{- fail "set both store.user and store.passwordSecret.name, or neither" -}}
{{- end -}}
{{- if not (or $store.caSecret.name (regexMatch "^etcd://(127[.]|localhost|[[]::1[]])" $store.url)) -}}
{{- fail "store.caSecret.name is empty: connections to etcd need TLS, so create a Secret with the authority of its certificates" -}}
{{- end -}}
{{- else -}}
{{- if gt (.Values.replicas | default 1 | int) 1 -}}
{{- fail "replicas is for several servers with a store on etcd: set store.url, or remove replicas, since a database on a volume has one server" -}}
{{- end -}}
{{- $unused := list .Values.keyring.secretName .Values.keyring.source $store.user $store.caSecret.name $store.clientCertificateSecret.name $store.passwordSecret.name | compact -}}
{{- if $unused -}}
{{- fail "store.url is empty, and the other values of store and keyring need it: set it to etcd://HOST:PORT,HOST:PORT/PREFIX" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The values of persistence without any of the user's. A case of the tests finds a difference to values.yaml. */}}
{{- define "postern.noPersistence" -}}
{{- $claim := dict "storageClassName" "" "annotations" (dict) -}}
{{- dict
    "data" (merge (dict "size" "10Gi") $claim)
    "keys" (merge (dict "size" "1Gi" "enabled" true) $claim)
    "backup" (merge (dict "size" "20Gi" "enabled" false) $claim) | toJson -}}
{{- end -}}

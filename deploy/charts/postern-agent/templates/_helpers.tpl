{{/* The name of the chart, or the one that replaces it. */}}
{{- define "postern-agent.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the objects. It leaves room for the endings of the Secrets, and has no dots, because a Service has it. */}}
{{- define "postern-agent.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "postern-agent.name" . -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- if contains $name $release -}}
{{- $release | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" $release $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The labels that never change: the selector of a Deployment is immutable. */}}
{{- define "postern-agent.selectorLabels" -}}
app.kubernetes.io/name: {{ include "postern-agent.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "postern-agent.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "postern-agent.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/component: agent
{{- end -}}

{{/* The labels of the chart together with labels from the values, which win. */}}
{{- define "postern-agent.labelsWith" -}}
{{- toYaml (merge (dict) (default (dict) .more) (include "postern-agent.labels" .root | fromYaml)) -}}
{{- end -}}

{{/* The name, the namespace and the labels of an object. */}}
{{- define "postern-agent.metadata" -}}
name: {{ include "postern-agent.fullname" . | quote }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "postern-agent.labels" . | nindent 2 }}
{{- end -}}

{{/* A digest wins over a tag. */}}
{{- define "postern-agent.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "postern-agent.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "postern-agent.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "postern-agent.keySecret" -}}
{{- default (printf "%s-key" (include "postern-agent.fullname" .)) .Values.key.existingSecret.name -}}
{{- end -}}

{{/* The host of advertise.host, without its port. */}}
{{- define "postern-agent.host" -}}
{{- regexReplaceAll ":[0-9]+$" (default "" .Values.advertise.host) "" -}}
{{- end -}}

{{/* The agent would advertise the port that it listens on. Clients come to the port of the Service, or to 443. */}}
{{- define "postern-agent.advertised" -}}
{{- $host := .Values.advertise.host -}}
{{- if regexMatch "^([^:]+|\\[.+\\]):[0-9]+$" $host -}}
{{- $host -}}
{{- else -}}
{{- if regexMatch "^[^[].*:" $host }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{- $public := or .Values.ingress.enabled .Values.tlsRoute.enabled -}}
{{- printf "%s:%d" $host (ternary 443 (.Values.service.port | int) $public) -}}
{{- end -}}
{{- end -}}

{{/* The names of the flags, as environment variables. */}}
{{- define "postern-agent.environment" -}}
{{- $listen := default "0.0.0.0" .Values.listenAddress -}}
{{- if contains ":" $listen }}{{ $listen = printf "[%s]" $listen }}{{ end -}}
- name: POSTERN_AGENT_CLUSTER
  value: {{ .Values.cluster | quote }}
- name: POSTERN_AGENT_SERVER
  value: {{ .Values.server.url | quote }}
{{- if or .Values.server.caBundle .Values.server.caSecret.name }}
- name: POSTERN_AGENT_CA_FILE
  value: /etc/postern-agent/server/ca.crt
{{- else }}
- name: POSTERN_AGENT_CA_DIGEST
  value: {{ .Values.server.caDigest | quote }}
{{- end }}
- name: POSTERN_AGENT_KEY_FILE
  value: /etc/postern-agent/key/key
- name: POSTERN_AGENT_UPSTREAM
  {{- if .Values.upstream.kubeconfigSecret.name }}
  value: /etc/postern-agent/upstream/config
  {{- else }}
  value: /etc/postern-agent/upstream
  {{- end }}
- name: POSTERN_AGENT_STATE_DIR
  value: /var/lib/postern-agent/state
{{- if .Values.advertise.host }}
- name: POSTERN_AGENT_LISTEN
  value: {{ printf "%s:9443" $listen | quote }}
- name: POSTERN_AGENT_ADVERTISE
  value: {{ include "postern-agent.advertised" . | quote }}
{{- end }}
{{- if eq .Values.advertise.ca "system" }}
- name: POSTERN_AGENT_ADVERTISE_SYSTEM_CA
  value: 'true'
{{- else if eq .Values.advertise.ca "secret" }}
- name: POSTERN_AGENT_ADVERTISE_CA_FILE
  value: /etc/postern-agent/advertised/ca.crt
{{- end }}
{{- if ne .Values.secrets.mode "off" }}
- name: POSTERN_AGENT_SECRETS
  value: {{ .Values.secrets.mode }}
{{- end }}
{{- if .Values.metrics.enabled }}
- name: POSTERN_AGENT_METRICS_LISTEN
  value: {{ printf "%s:9090" $listen | quote }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: POSTERN_AGENT_{{ $name | upper | replace "-" "_" }}
  {{- /* A number from a file is a float, which would be written with an exponent. */}}
  value: {{ kindIs "float64" $value | ternary ($value | int64) $value | toString | quote }}
{{- end }}
{{- end -}}

{{/* How the kubelet asks the agent. Without a host to advertise it listens nowhere, and has a socket in its state directory. */}}
{{- define "postern-agent.probe" -}}
{{- if .root.Values.advertise.host -}}
httpGet:
  path: {{ .path }}
  port: https
  scheme: HTTPS
{{- else -}}
exec:
  command: [postern, health{{ if eq .path "/healthz" }}, --live{{ end }}]
{{- end -}}
{{- end -}}

{{/* One key of a Secret, as a file. The files belong to root, and the group is fsGroup. */}}
{{- define "postern-agent.file" -}}
secret:
  secretName: {{ .name | quote }}
  # 0440
  defaultMode: 288
  items:
  - key: {{ .key | quote }}
    path: {{ .path }}
{{- end -}}

{{/* kube-apiserver 1.20 has the older version alone. */}}
{{- define "postern-agent.policyVersion" -}}
{{- if .Capabilities.APIVersions.Has "policy/v1" }}policy/v1{{ else }}policy/v1beta1{{ end -}}
{{- end -}}

{{/* Missing and contradicting values end the rendering with a message. */}}
{{- define "postern-agent.check" -}}
{{- if not .Values.cluster -}}
{{- fail "cluster is empty: name the Cluster that `postern create cluster` created" -}}
{{- end -}}
{{- if not .Values.server.url -}}
{{- fail "server.url is empty: set the URL of the central server" -}}
{{- end -}}
{{- $trust := list .Values.server.caDigest .Values.server.caBundle .Values.server.caSecret.name | compact -}}
{{- if ne (len $trust) 1 -}}
{{- fail "set exactly one of server.caDigest, server.caBundle and server.caSecret.name: the agent trusts no other authority" -}}
{{- end -}}
{{- $keys := list .Values.key.value .Values.key.existingSecret.name | compact -}}
{{- if ne (len $keys) 1 -}}
{{- fail "set exactly one of key.existingSecret.name and key.value: the access key of the agent" -}}
{{- end -}}
{{- if and (ne .Values.advertise.ca "own") (not .Values.advertise.host) -}}
{{- fail "advertise.host is empty: advertise.ca is the authority of that host" -}}
{{- end -}}
{{- if ne (eq .Values.advertise.ca "secret") (not (empty .Values.advertise.caSecret.name)) -}}
{{- fail "set both advertise.ca to secret and advertise.caSecret.name, or neither" -}}
{{- end -}}
{{- if and (or .Values.ingress.enabled .Values.tlsRoute.enabled) (regexMatch "^[0-9.]*$|:" (include "postern-agent.host" .)) -}}
{{- fail "advertise.host is no name: ingress and tlsRoute forward by the name in the TLS handshake" -}}
{{- end -}}
{{- if and .Values.tlsRoute.enabled (not .Values.tlsRoute.parentRefs) -}}
{{- fail "tlsRoute.parentRefs is empty: name the Gateway with a listener of protocol TLS and mode Passthrough" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.controller) (not .Values.ingress.annotations) -}}
{{- fail "ingress needs annotations: set ingress.controller to nginx or haproxy for TLS passthrough, or ingress.annotations to those of your controller" -}}
{{- end -}}
{{- if and (or .Values.metrics.serviceMonitor.enabled .Values.metrics.prometheusRule.enabled) (not .Values.metrics.enabled) -}}
{{- fail "metrics.enabled is false: serviceMonitor and prometheusRule need the metrics" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.metricsFrom (not .Values.metrics.enabled) -}}
{{- fail "metrics.enabled is false: networkPolicy.metricsFrom needs the metrics" -}}
{{- end -}}
{{- if and .Values.virtualClusters (or (not .Values.rbac.create) .Values.upstream.kubeconfigSecret.name) -}}
{{- fail "virtualClusters creates Roles for the ServiceAccount: set rbac.create and no upstream.kubeconfigSecret.name, or remove virtualClusters and create the Roles yourself" -}}
{{- end -}}
{{- include "postern-agent.checkNames" . -}}
{{- include "postern-agent.checkService" . -}}
{{- end -}}

{{/* Names that Kubernetes refuses, and keys that the chart needs for itself. */}}
{{- define "postern-agent.checkNames" -}}
{{- $name := include "postern-agent.fullname" . -}}
{{- if not (regexMatch "^[a-z]" $name) -}}
{{- fail (printf "the name of the objects is %s, and the name of a Service begins with a letter: set fullnameOverride" $name) -}}
{{- end -}}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/instance" -}}
{{- if hasKey (default (dict) $.Values.podLabels) $label -}}
{{- fail (printf "podLabels has %s: the chart finds its pods by this label, so remove it" $label) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (default (dict) .Values.podAnnotations) "checksum/files" -}}
{{- fail "podAnnotations has checksum/files: the chart sets this annotation, so remove it" -}}
{{- end -}}
{{- end -}}

{{/* Without advertise.host there is no Service. Fields that a Service of another type does not have are refused. */}}
{{- define "postern-agent.checkService" -}}
{{- $service := .Values.service -}}
{{- $isSet := or (ne $service.type "ClusterIP") (ne (int $service.port) 443) $service.nodePort $service.annotations $service.loadBalancerSourceRanges $service.externalTrafficPolicy -}}
{{- if and $isSet (not .Values.advertise.host) -}}
{{- fail "advertise.host is empty, and without it the agent has no Service: set it, or remove the values of service" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.from (not .Values.advertise.host) -}}
{{- fail "advertise.host is empty, and without it no client connects: set it, or remove networkPolicy.from" -}}
{{- end -}}
{{- if and (eq $service.type "ClusterIP") (or $service.nodePort $service.externalTrafficPolicy) -}}
{{- fail "service.type is ClusterIP, and service.nodePort and service.externalTrafficPolicy need NodePort or LoadBalancer: change the type, or remove them" -}}
{{- end -}}
{{- if and (ne $service.type "LoadBalancer") $service.loadBalancerSourceRanges -}}
{{- fail "service.loadBalancerSourceRanges needs the service.type LoadBalancer: change the type, or remove them" -}}
{{- end -}}
{{- end -}}
